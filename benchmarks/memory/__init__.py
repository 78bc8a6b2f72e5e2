"""What memory costs, measured: `python -m benchmarks.memory` prints its tables."""
