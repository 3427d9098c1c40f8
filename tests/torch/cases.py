"""A call of each op: its inputs and attributes. `float64`: the same values, for derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from metal_ops.torch import HashGrid

GRID = HashGrid(n_dims=3, n_levels=3, log2_hashmap_size=7, base_resolution=4, per_level_scale=1.6)
OFFSETS = torch.tensor(list(GRID.offsets), dtype=torch.int32)
PACKED = torch.tensor([[0, 3], [3, 0], [3, 4]], dtype=torch.int32)
NONE = torch.zeros([0])
MLP = {"n_outputs": 3, "n_neurons": 16, "n_hidden_layers": 2}
MLP_WEIGHTS = 5 * 16 + 16 * 16 + 16 * 3


class Values:
    """Numbers that do not depend on the order of calls."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(7)

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator)

    def unit(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=self.generator)

    def bytes(self, *shape: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        return torch.randint(0, 250, shape, generator=self.generator).to(dtype)


V = Values
Case = tuple[list[Any], dict[str, Any]]
CASES: dict[str, Callable[[Values], Case]] = {}


def case(name: str) -> Callable[[Callable[[Values], Case]], Callable[[Values], Case]]:
    def add(make: Callable[[Values], Case]) -> Callable[[Values], Case]:
        CASES[name] = make
        return make

    return add


def of(name: str) -> Case:
    return CASES[name](Values())


def hash_inputs(v: V) -> list[torch.Tensor]:
    return [v.unit(9, 3), v.normal(*GRID.table_shape), OFFSETS]


def hash_case(name: str, first: Callable[[Values], list[torch.Tensor]]) -> None:
    CASES[name] = lambda v: ([*first(v), *hash_inputs(v)], dict(GRID.op_attributes))


G = GRID.output_dim
hash_case("hash_encode", lambda v: [])
hash_case("hash_encode_grad", lambda v: [v.normal(9, G)])
hash_case("hash_encode_point_grad", lambda v: [v.normal(9, G)])
hash_case("hash_encode_jvp", lambda v: [v.normal(9, 3)])
hash_case("hash_encode_jvp_grad", lambda v: [v.normal(9, 3), v.normal(9, G)])
hash_case("hash_encode_jvp_point_grad", lambda v: [v.normal(9, 3), v.normal(9, G)])


def samples(v: V, *shape: int) -> list[torch.Tensor]:
    starts = torch.cumsum(v.unit(*shape) + 0.1, -1)
    return [starts, starts + 0.05]


def rays(v: V) -> list[torch.Tensor]:
    return [v.unit(7), v.unit(7, 3), *samples(v, 7), PACKED, v.unit(3)]


CASES |= {
    "null_op": lambda v: ([v.normal(3, 4)], {"scale": 2.0}),
    "zero_out": lambda v: ([v.normal(3, 4)], {}),
    "softshrink": lambda v: ([v.normal(3, 4)], {"lambd": 0.25}),
    "softshrink_grad": lambda v: ([v.normal(3, 4), v.normal(3, 4)], {}),
    "scale_slope": lambda v: ([v.normal(3), v.normal(3, 4)], {}),
    "scale_slope_sum": lambda v: ([v.normal(3), v.normal(3, 4), v.normal(4)], {}),
    "swiglu": lambda v: ([v.normal(3, 4), v.normal(3, 4)], {}),
    "swiglu_grad": lambda v: ([v.normal(3, 4), v.normal(3, 4), v.normal(3, 4)], {}),
    "row_norm": lambda v: ([v.normal(3, 4), v.normal(4), v.normal(4)], {}),
    "row_norm_grad": lambda v: (
        [v.normal(3, 4), v.normal(3, 4), v.normal(4), v.normal(3), v.unit(3)],
        {},
    ),
    "rope": lambda v: (
        [v.normal(2, 3, 5, 6), torch.arange(5, dtype=torch.int32)[None], v.unit(2, 3) * 0.01],
        {"interleaved": True},
    ),
    "metal_rope_tables": lambda v: ([v.normal(2, 3, 4), v.normal(3, 4), v.normal(3, 4)], {}),
    "sh_encode": lambda v: ([v.normal(5, 3)], {"degree": 3}),
    "sh_encode_grad": lambda v: ([v.normal(5, 9), v.normal(5, 3)], {"degree": 3}),
    "frequency_encode": lambda v: ([v.unit(5, 2)], {"n_frequencies": 2}),
    "frequency_encode_grad": lambda v: ([v.normal(5, 10), v.unit(5, 2)], {"n_frequencies": 2}),
    "fused_mlp": lambda v: (
        [v.normal(6, 5), v.normal(MLP_WEIGHTS) * 0.3],
        {**MLP, "activation": "sigmoid"},
    ),
    "fused_mlp_grad": lambda v: (
        [v.normal(6, 3), v.normal(6, 5), v.normal(MLP_WEIGHTS) * 0.3],
        {**MLP, "activation": "sigmoid"},
    ),
    "distortion_loss": lambda v: ([v.unit(7), *samples(v, 7), PACKED], {"t_gradients": True}),
    "scale_rays": lambda v: ([v.normal(3), v.normal(7), PACKED], {}),
    "robust_loss": lambda v: (
        [v.normal(3, 4), v.normal(3, 4), v.unit(4), v.unit(4) + 0.5],
        {"parameter_gradients": True},
    ),
    "sigmoid_focal_loss": lambda v: ([v.normal(3, 4), v.unit(3, 4)], {"balanced": True}),
    "softmax_focal_loss": lambda v: (
        [v.normal(3, 4), torch.tensor([1, 0, 3], dtype=torch.int32)],
        {"z_loss": 0.1},
    ),
    "packed_scan": lambda v: ([v.normal(7), PACKED], {"reduction": "prod", "exclusive": True}),
    "packed_prod_grad": lambda v: ([v.normal(7), v.normal(7), PACKED], {}),
    "pack_ray_indices": lambda v: (
        [torch.tensor([0, 0, 2, 2, 2], dtype=torch.int32), torch.tensor(4, dtype=torch.int32)],
        {},
    ),
    "render_weights": lambda v: ([v.unit(7), *samples(v, 7), PACKED], {"t_gradients": True}),
    "render_weights_grad": lambda v: (
        [v.unit(7), v.unit(7), v.unit(7), *samples(v, 7), PACKED],
        {},
    ),
    "volume_render": lambda v: (rays(v), {"t_gradients": True}),
    "volume_render_grad": lambda v: (
        [v.unit(3, 3), v.unit(3), v.unit(3), NONE, NONE, *rays(v)],
        {"t_gradients": True},
    ),
    "ray_march": lambda v: (
        [
            *(v.unit(4, 3), v.unit(4, 3)),
            *(v.bytes(1, 8), torch.tensor([0.0, 0, 0, 1, 1, 1]), torch.tensor(0.0)),
            *(torch.tensor(2.0), torch.tensor([1, 2], dtype=torch.int32)),
        ],
        {"resolution": 4, "step": 0.1, "stratified": True},
    ),
    "pack_occupancy": lambda v: ([v.unit(2, 11), torch.tensor(0.5)], {}),
    "hamming_distance": lambda v: ([v.bytes(3, 4), v.bytes(1, 4)], {}),
    "metal_quantized_mat_mul": lambda v: (
        [v.normal(3, 64), v.bytes(5, 32), v.unit(5, 2).half(), v.normal(5, 2).half()],
        {},
    ),
    "metal_dynamic_mat_mul": lambda v: (
        [v.normal(3, 64), v.bytes(5, 32), v.unit(5, 2).half(), v.normal(5, 2).half()],
        {},
    ),
    "metal_dequantize": lambda v: (
        [v.bytes(5, 32), v.unit(5, 2).half(), v.normal(5, 2).half()],
        {"inputs": 64},
    ),
    "metal_lookup_mat_mul": lambda v: (
        [v.normal(3, 8), v.bytes(20, 4), v.normal(2, 16).half()],
        {},
    ),
    "metal_lookup_weights": lambda v: (
        [v.bytes(20, 4), v.normal(2, 16).half()],
        {"inputs": 8, "T": torch.bfloat16},
    ),
    "metal_fused_mat_mul": lambda v: (
        [v.normal(3, 4), v.normal(4, 5), [v.normal(5), v.normal(3, 5)]],
        {"fused_ops": ["BiasAdd", "Add", "Relu"]},
    ),
    "metal_fused_conv2d": lambda v: (
        [v.normal(1, 6, 5, 2), v.normal(3, 3, 2, 4), [v.normal(4)]],
        {"strides": [1, 2, 1, 1], "padding": "SAME", "fused_ops": ["BiasAdd", "Relu"]},
    ),
    "metal_fused_bias_grad": lambda v: ([v.normal(3, 4), v.normal(3, 4)], {}),
    "metal_fused_batch_norm_grad": lambda v: (
        [v.normal(3, 4), v.normal(3, 4), v.normal(3, 4), v.unit(4), v.normal(4), v.unit(4)],
        {},
    ),
}


def attention(v: V) -> list[torch.Tensor]:
    q, k, value = v.normal(2, 4, 5, 8), v.normal(2, 2, 6, 8), v.normal(2, 2, 6, 3)
    lengths = torch.tensor([6, 4], dtype=torch.int32)
    bias = v.normal(1, 4, 5, 6)
    seed = torch.zeros(2, dtype=torch.int32)
    return [q, k, value, torch.zeros(0, dtype=torch.bool), bias, lengths, seed]


def saved(v: V) -> list[torch.Tensor]:
    inputs = attention(v)
    outputs = torch.ops.metal_ops.scaled_dot_product_attention(*inputs, use_bias=True)
    return [*inputs, *outputs, v.normal(2, 4, 5, 3)]


CASES |= {
    "scaled_dot_product_attention": lambda v: (attention(v), {"use_bias": True}),
    "scaled_dot_product_attention_grad": lambda v: (saved(v), {"use_bias": True}),
    "scaled_dot_product_attention_bias_grad": lambda v: (saved(v), {"use_bias": True}),
}


def states(v: V) -> list[torch.Tensor]:
    no_mask = torch.zeros(0, dtype=torch.bool)
    return [v.normal(4, 16), v.normal(2, 4), v.normal(2, 4), no_mask, *[NONE] * 4]


def recurrent(v: V) -> list[torch.Tensor]:
    return [v.normal(2, 3, 16), *states(v), NONE]


def recurrent_saved(v: V) -> list[torch.Tensor]:
    inputs = recurrent(v)
    activated, y, cells, _, _, products = torch.ops.metal_ops.recurrent_sequence(
        *inputs, cell="lstm"
    )
    given = [v.normal(2, 3, 4), v.normal(2, 4), v.normal(2, 4)]
    return [*given, activated, y, cells, products, *inputs[1:-1]]


CASES |= {
    "recurrent_sequence": lambda v: (recurrent(v), {"cell": "lstm"}),
    "recurrent_sequence_grad": lambda v: (recurrent_saved(v), {"cell": "lstm"}),
}
