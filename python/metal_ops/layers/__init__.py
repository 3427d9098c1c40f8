"""Keras 3 layers, one per file."""

from metal_ops.layers.attention import Attention
from metal_ops.layers.forget_gate_unit import ForgetGateUnit
from metal_ops.layers.fused_mlp import FusedMLP
from metal_ops.layers.gru import GRU
from metal_ops.layers.hash_encoding import HashEncoding
from metal_ops.layers.lstm import LSTM
from metal_ops.layers.minimal_gated_unit import MinimalGatedUnit
from metal_ops.layers.multi_head_attention import MultiHeadAttention
from metal_ops.layers.quantized_conv2d import QuantizedConv2D
from metal_ops.layers.quantized_dense import QuantizedDense
from metal_ops.layers.quantized_embedding import QuantizedEmbedding

__all__ = [
    "GRU",
    "LSTM",
    "Attention",
    "ForgetGateUnit",
    "FusedMLP",
    "HashEncoding",
    "MinimalGatedUnit",
    "MultiHeadAttention",
    "QuantizedConv2D",
    "QuantizedDense",
    "QuantizedEmbedding",
]
