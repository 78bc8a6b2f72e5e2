"""What a delta costs, measured: `python -m benchmarks` prints it beside a direct reader and a bare aiohttp relay."""
