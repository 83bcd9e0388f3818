"""The whole worker, as one who did not write it: real broker, real database, killed processes."""
