"""What an operator does to a running installation: look, cancel, release, reset, delete, replay; each act audited."""
