"""`make test-checks`: the shaders of kernels/ and device/ under HOSTMETAL_CHECK, with small arguments."""
