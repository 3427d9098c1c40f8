"""The gradients' shaders of four simdgroups together, as the CPU device runs them, in buffers that end where they do:
those of keys and of queries, and those of both in turns, which no host launches there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.oracles import attention

from .shaders import library

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.compiler
FILES = [f"attention_{name}_gradient.metal" for name in ("warpgroups", "turns")]
# All instances take a minute.
KERNELS = """
INSTANTIATE_KERNEL("means", attention_warpgroups_means, half, 64)
INSTANTIATE_KERNEL("d_kv", attention_warpgroups_d_kv, half, 64, ATTENTION_GRADIENT_KV_SMALL)
INSTANTIATE_KERNEL("d_q", attention_warpgroups_d_q, half, 64, ATTENTION_GRADIENT_Q_SMALL)
INSTANTIATE_KERNEL("turns_d_all", attention_turns_d_all, half, 64, ATTENTION_GRADIENT_TURNS_64)
INSTANTIATE_KERNEL("turns_d_q", attention_turns_d_q, half, 64, ATTENTION_GRADIENT_TURNS_64)
"""
STEPS = np.dtype([(name, "i8") for name in ("batch", "head", "query", "key")])
PARAMS = np.dtype(
    [
        *((name, STEPS) for name in ("mask", "bias")),
        *((name, "u4") for name in ("batches", "heads", "kv_heads", "queries", "keys")),
        *((name, "u4") for name in ("size", "value_size")),
        *((name, "i4") for name in ("left", "right")),
        *((name, "f4") for name in ("scale", "soft_cap", "dropout_scale")),
        *((name, "u4") for name in ("dropout", "use_mask", "use_bias", "use_lengths")),
        ("bias_shape", "u4", 4),
        ("end", "u4", 1),
    ],
    align=True,
)
# (batch, heads, kv_heads, queries, keys, size, value_size), and options.
CASES = {
    "one": ((1, 1, 1, 1, 1, 8, 8), {}),
    "shared heads": ((1, 4, 2, 150, 300, 64, 64), {"causal": True}),
    "window": ((2, 2, 2, 140, 270, 64, 48), {"window": (140, 3)}),
    "later queries": ((1, 2, 1, 300, 130, 17, 33), {"causal": True}),
    "lengths": ((2, 2, 1, 90, 200, 40, 64), {"causal": True, "key_lengths": np.array([131, 0])}),
    "all": (
        (1, 2, 2, 70, 90, 64, 64),
        {"window": (40, 0), "soft_cap": 2.0, "dropout": 0.1, "seed": (3, -5), "given": True},
    ),
}
RUN_IN_TURNS = 2**17  # queries times keys; with more it takes seconds


def steps_of(array: np.ndarray | None) -> tuple[int, ...]:
    if array is None:
        return (0, 0, 0, 0)
    _, heads, queries, keys = array.shape
    steps = (heads * queries * keys, queries * keys, keys, 1)
    return tuple(0 if n == 1 else step for n, step in zip(array.shape, steps, strict=True))


def params_of(shape: tuple[int, ...], mask, bias, options: dict) -> np.ndarray:
    params = np.zeros((), PARAMS)
    for name, value in zip(PARAMS.names[2:9], shape, strict=True):
        params[name] = value
    left, right = options.get("window", (None, None))
    params["left"] = -1 if left is None else left
    params["right"] = 0 if options.get("causal") else -1 if right is None else right
    params["scale"] = shape[5] ** -0.5
    params["soft_cap"] = options.get("soft_cap", 0)
    rate = np.float64(np.float32(options.get("dropout", 0)))
    params["dropout"], params["dropout_scale"] = int(rate * 2.0**32), 1 / (1 - rate)
    params["mask"], params["bias"] = steps_of(mask), steps_of(bias)
    params["use_mask"], params["use_bias"] = mask is not None, bias is not None
    params["use_lengths"] = "key_lengths" in options
    if bias is not None:
        params["bias_shape"] = bias.shape
    return params


def source() -> str:
    texts = ((ROOT / "kernels/attention" / name).read_text() for name in FILES)
    return "".join(text[: text.index("#define INSTANTIATE")] for text in texts) + KERNELS


@pytest.mark.parametrize("case", CASES)
def test_gradients(case: str) -> None:
    shape, options = CASES[case][0], dict(CASES[case][1])
    batch, heads, kv_heads, queries, keys, size, value_size = shape
    random = np.random.default_rng(1)
    q, k, v, incoming = (
        random.normal(size=(batch, n, length, width)).astype(np.float16)
        for n, length, width in (
            *((heads, queries, size), (kv_heads, keys, size)),
            *((kv_heads, keys, value_size), (heads, queries, value_size)),
        )
    )
    mask = bias = None
    if options.pop("given", False):
        mask = random.random((batch, 1, queries, keys)) < 0.7
        bias = random.normal(size=(1, heads, 1, keys)).astype(np.float16)
    right = attention.Attention(q, k, v, mask=mask, bias=bias, **options)
    expected = right.gradients(incoming.astype(np.float64))[:3]
    params = params_of(shape, mask, bias, options)
    lib = library(source(), checked=True, header="", include=(str(ROOT),))

    padded = -(-queries // 128) * 128
    turns = np.full(batch * heads * padded // 128 + 1, 7, np.uint32)
    pairs = np.full((batch, heads, padded, 2), np.nan, np.float32)
    lib["means"].run(
        (padded * 8, heads, batch),
        64,
        {0: right.outputs.astype(np.float16), 1: incoming, 2: right.log_sum_exp.astype(np.float32),
         3: pairs, 4: turns, 5: np.uint32(turns.size), 6: params},
    )  # fmt: skip
    none = np.zeros(1, np.float16)
    inputs = {
        **dict(
            enumerate((q, k, v, none if mask is None else mask, none if bias is None else bias))
        ),
        5: np.asarray(options.get("key_lengths", [0]), np.int32),
        **{6: np.asarray(options.get("seed", (0, 0)), np.int32), 7: pairs, 8: incoming},
    }
    plain = {
        0: np.bool_(mask is None and bias is None and not {"soft_cap", "dropout"} & {*options})
    }
    found = [np.full(x.shape, np.nan, np.float16) for x in (q, k, v)]
    lib["d_kv"].run(
        (128 * -(-keys // 64), kv_heads, batch), 128,
        {**inputs, 9: found[1], 10: found[2], 11: params}, constants=plain,
        threadgroup_memory={0: 4 * 64 * (64 + 2 * 16) + 8 * 2 * 16},
    )  # fmt: skip
    lib["d_q"].run(
        (128 * -(-queries // 64), heads, batch), 128,
        {**inputs, 9: found[0], 10: params}, constants=plain, threadgroup_memory={0: 4 * 64 * 2 * 16},
    )  # fmt: skip
    compare(found, expected)
    if queries * keys * heads > RUN_IN_TURNS:
        return
    found = [np.full(x.shape, np.nan, np.float16) for x in (q, k, v)]
    sums = np.full((batch * heads * padded // 128, 128 * 64), np.nan, np.float32)
    groups = -(-keys // 128) * kv_heads * batch
    lib["turns_d_all"].run(
        384 * groups, 384,
        {**inputs, 9: found[1], 10: found[2], 11: sums, 12: turns, 13: params}, constants=plain,
        threadgroup_memory={0: 4 * 64 * (128 + 4 * 128) + (256 + 8 * 2) * 128}, workers=2,
    )  # fmt: skip
    lib["turns_d_q"].run(
        (256 * (padded // 128), heads, batch), 256, {0: sums, 1: turns, 2: found[0], 3: params}
    )
    assert turns[-1] == groups
    compare(found, expected)


def compare(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """To three roundings of the largest value, as tests/test_attention.py has it."""
    for name, actual, right in zip(("d_q", "d_k", "d_v"), found, expected, strict=True):
        scale = max(np.abs(right).max(), 0.1)
        np.testing.assert_allclose(actual, right, rtol=0, atol=3 * 2.0**-10 * scale, err_msg=name)
