"""The benchmark keeps its books right, and a small run goes through."""
