"""Benchmarks of the memory service: `python -m benchmarks.memory` prints the tables."""
