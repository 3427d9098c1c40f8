"""Keras 3 optimizers, one a file."""

from metal_ops.optimizers.adam import Adam

__all__ = ["Adam"]
