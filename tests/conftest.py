"""What every test can ask for: the rules matrix, a real broker, a real database."""

pytest_plugins = [
    "pytester",
    "tests.support.rules",
    "tests.support.kafka.fixtures",
    "tests.support.postgres_fixture",
    "tests.support.big_tables",
    "tests.support.crashing",
]
