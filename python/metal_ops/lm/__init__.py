"""A small language model over bytes, from this library's ops: `python -m metal_ops lm`."""
