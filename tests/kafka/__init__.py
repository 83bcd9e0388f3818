"""Records in and out of a real broker."""
