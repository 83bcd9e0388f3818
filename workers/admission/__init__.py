"""Admission: the claim on an idempotency key and the queued run, committed together before any offset moves."""
