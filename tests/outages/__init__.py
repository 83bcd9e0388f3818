"""Whole workers (`parley serve`, every role) while Kafka or Postgres is away, slow, silent, full or read-only."""
