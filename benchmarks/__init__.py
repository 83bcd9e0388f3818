"""How fast a whole worker is beside a bare loop that promises nothing: `python -m benchmarks`, `make bench`."""
