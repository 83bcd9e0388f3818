"""The schema of the Postgres database, migration by migration."""
