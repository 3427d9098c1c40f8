"""Keras 3 layers, one per file."""

from metal_ops.layers.fused_mlp import FusedMLP
from metal_ops.layers.hash_encoding import HashEncoding
from metal_ops.layers.multi_head_attention import MultiHeadAttention

__all__ = ["FusedMLP", "HashEncoding", "MultiHeadAttention"]
