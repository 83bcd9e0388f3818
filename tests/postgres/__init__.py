"""Connections, batches, failures and hints."""
