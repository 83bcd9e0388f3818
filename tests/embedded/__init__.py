"""Postgres and the mock cluster in a process of their own."""
