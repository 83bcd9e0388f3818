"""Postgres and a Kafka of one broker in a process of their own, for development and tests."""

from workers.embedded.services import EmbeddedServices, Running, embedded_services

__all__ = ["EmbeddedServices", "Running", "embedded_services"]
