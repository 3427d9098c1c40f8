"""Slow, plain NumPy float64 versions of the ops. They share no code with the package."""
