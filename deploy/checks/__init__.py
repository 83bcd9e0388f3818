"""What `make deploy-check` looks at: that the deployment files are right, together and against the code."""
