"""What the tests stand on: a real broker, a real database, and the matrix of rules they show."""
