"""Journal, send, reconcile."""
