"""Keras 3 optimizers, one per file."""

from metal_ops.optimizers.adam import Adam, AdamW
from metal_ops.optimizers.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW"]
