"""Speed of metal_ops beside what a user would pick instead: `python -m benchmarks`, or `make bench`."""
