"""What the memory room promises: recall by properties, the transcript and the notes on a real Postgres."""
