"""A real run: Kafka, Postgres, each role in processes of its own, load, faults, a Prometheus that scrapes."""
