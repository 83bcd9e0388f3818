"""A real Apache Kafka without containers: on loopback, and gone with the process that started it."""
