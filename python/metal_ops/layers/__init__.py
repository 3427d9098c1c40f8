"""Keras 3 layers, one per file."""

from metal_ops.layers.attention import Attention
from metal_ops.layers.forget_gate_unit import ForgetGateUnit
from metal_ops.layers.frequency_encoding import FrequencyEncoding
from metal_ops.layers.fused_mlp import FusedMLP
from metal_ops.layers.group_query_attention import GroupQueryAttention
from metal_ops.layers.gru import GRU
from metal_ops.layers.hash_encoding import HashEncoding
from metal_ops.layers.lstm import LSTM
from metal_ops.layers.minimal_gated_unit import MinimalGatedUnit
from metal_ops.layers.multi_head_attention import MultiHeadAttention
from metal_ops.layers.quantized_conv2d import QuantizedConv2D
from metal_ops.layers.quantized_dense import QuantizedDense
from metal_ops.layers.quantized_embedding import QuantizedEmbedding
from metal_ops.layers.rms_normalization import RMSNormalization
from metal_ops.layers.rotary_embedding import RotaryEmbedding
from metal_ops.layers.spherical_harmonics import SphericalHarmonics
from metal_ops.layers.swiglu import SwiGLU

__all__ = [
    "GRU",
    "LSTM",
    "Attention",
    "ForgetGateUnit",
    "FrequencyEncoding",
    "FusedMLP",
    "GroupQueryAttention",
    "HashEncoding",
    "MinimalGatedUnit",
    "MultiHeadAttention",
    "QuantizedConv2D",
    "QuantizedDense",
    "QuantizedEmbedding",
    "RMSNormalization",
    "RotaryEmbedding",
    "SphericalHarmonics",
    "SwiGLU",
]
