"""Turns on a real Postgres: order, fence, lease, crash."""
