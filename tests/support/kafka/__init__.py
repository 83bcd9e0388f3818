"""A real Apache Kafka without containers: brokers of its own, on loopback, gone with the process that started them."""
