"""Faults planted in kernels, and whether HOSTMETAL_CHECK tells of them."""
