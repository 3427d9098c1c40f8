"""Speed of metal_ops beside a user's alternatives: `python -m benchmarks`, or `make bench`."""
