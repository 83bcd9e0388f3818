"""Postgres: the only owner of database connections."""
