"""The image program: fits a picture with a hash grid and a small network, `python -m metal_ops image`."""
