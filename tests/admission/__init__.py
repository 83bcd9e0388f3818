"""Reserve, compare, queue."""
