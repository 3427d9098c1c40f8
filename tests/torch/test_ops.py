"""Every op in PyTorch: its registration, shapes without memory, gradients by differences, compilers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from metal_ops.torch import _declared, ops
from tests.torch import cases

OPS = {op.name: op for op in _declared.ops().values()}
DIFFERENTIABLE = [name for name, op in OPS.items() if op.rules]


def overload(name: str, which: str = "default") -> Any:
    return getattr(getattr(torch.ops.metal_ops, name), which)


def with_gradients(name: str) -> list[Any]:
    """The case's inputs; those with a gradient ask for it."""
    args, _ = cases.of(name)
    targets = {target for rule in OPS[name].rules for target in rule.targets}
    return [
        value.requires_grad_() if given.name in targets else value
        for given, value in zip(OPS[name].inputs, args, strict=True)
    ]


def flat(outputs: Any) -> list[torch.Tensor]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


def test_every_op_has_a_case() -> None:
    assert set(cases.CASES) == set(OPS)


@pytest.mark.parametrize("which", ["default", "kernel"])
@pytest.mark.parametrize("name", OPS)
def test_opcheck(name: str, which: str) -> None:
    args, attrs = cases.of(name)
    if which == "default" and name in DIFFERENTIABLE:
        args = with_gradients(name)
    torch.library.opcheck(overload(name, which), args, attrs)


# ---- gradients ------------------------------------------------------------------------------------------------------

# Its numbers are steps, and the gradient is that of the line through them.
STEPS = {"metal_dynamic_mat_mul"}


def of_float64(name: str) -> tuple[Any, list[torch.Tensor]]:
    """A function of those inputs that have gradients, in float64, and their values."""
    args, attrs = cases.of(name)
    targets = {target for rule in OPS[name].rules for target in rule.targets}
    at = [i for i, given in enumerate(OPS[name].inputs) if given.name in targets]

    def function(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = list(args)
        for i, value in zip(at, values, strict=True):
            given[i] = value.to(args[i].dtype)
        outputs = flat(overload(name)(*given, **attrs))
        return tuple(one.double() for one in outputs if one.requires_grad)

    return function, [args[i].double().requires_grad_() for i in at]


# Differences of float32 in steps of 3e-4 are right to 1e-7 / 3e-4, and larger steps cross cells of the grid.
DIFFERENCES: dict[str, Any] = {"eps": 3e-4, "atol": 3e-3, "rtol": 1e-2}
# Larger numbers, whose roundings are larger.
LARGE = {"hash_encode_point_grad", "metal_quantized_mat_mul"}


@pytest.mark.parametrize("name", [name for name in DIFFERENTIABLE if name not in STEPS])
def test_gradients_are_those_of_differences(name: str) -> None:
    function, values = of_float64(name)
    allowed = {**DIFFERENCES, "atol": 0.03} if name in LARGE else DIFFERENCES
    assert torch.autograd.gradcheck(function, values, **allowed)


@pytest.mark.parametrize("name", ["null_op", "rope", "hash_encode", "hash_encode_jvp"])
def test_second_derivatives_are_those_of_differences(name: str) -> None:
    if name == "hash_encode_jvp":  # its gradient of points has none
        with pytest.raises(NotImplementedError, match="hash_encode_jvp_point_grad: derivatives"):
            function, values = of_float64(name)
            first = torch.autograd.grad(function(*values)[0].sum(), values, create_graph=True)
            torch.autograd.grad(sum(one.sum() for one in first), values)
        return
    function, values = of_float64(name)
    assert torch.autograd.gradgradcheck(function, values, **{**DIFFERENCES, "atol": 0.03})


def test_steps_have_the_gradient_of_the_product_without_them() -> None:
    found = []
    for name in ("metal_dynamic_mat_mul", "metal_quantized_mat_mul"):
        args, attrs = cases.of(name)
        x = args[0].requires_grad_()
        found.append(torch.autograd.grad(overload(name)(x, *args[1:], **attrs).sum(), x)[0])
    assert torch.equal(*found) and found[0].abs().sum() > 0


@pytest.mark.parametrize(
    "name", [name for name, op in OPS.items() if not op.rules and op.name != "pack_ray_indices"]
)
def test_ops_without_a_gradient_say_so(name: str) -> None:
    args, attrs = cases.of(name)
    floats = [
        i for i, one in enumerate(args) if isinstance(one, torch.Tensor) and one.is_floating_point()
    ]
    if not floats:
        return
    args[floats[0]].requires_grad_()
    outputs = flat(overload(name)(*args, **attrs))
    if not any(one.is_floating_point() for one in outputs):
        assert not any(one.requires_grad for one in outputs)
        return
    outputs = [one for one in outputs if one.requires_grad]
    with pytest.raises(NotImplementedError, match=f"{name}: derivatives of it are not provided"):
        sum(one.sum() for one in outputs).backward()


# ---- functions and compilers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPS)
def test_functions_are_the_ops(name: str) -> None:
    args, attrs = cases.of(name)
    function = getattr(ops, name)
    expected = flat(overload(name)(*args, **attrs))
    for found in (flat(function(*args, **attrs)), flat(overload(name, "kernel")(*args, **attrs))):
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num())
    if name in DIFFERENTIABLE:
        outputs = flat(function(*with_gradients(name), **attrs))
        assert any(one.requires_grad for one in outputs)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_compiled_without_graph_breaks(name: str) -> None:
    """Forward and backward, as they are without a compiler."""

    def losses(*args: Any) -> list[torch.Tensor]:
        outputs = flat(getattr(ops, name)(*args, **attrs))
        return [one for one in outputs if one.requires_grad]

    torch.compiler.reset()
    _, attrs = cases.of(name)
    compiled = torch.compile(losses, fullgraph=True, backend="aot_eager")
    found = []
    for function in (losses, compiled):
        args = with_gradients(name)
        outputs = function(*args)
        wanted = [one for one in args if isinstance(one, torch.Tensor) and one.requires_grad]
        total: Any = sum(one.float().sum() for one in outputs)
        found.append([*outputs, *torch.autograd.grad(total, wanted)])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", OPS)
def test_shapes_on_meta(name: str) -> None:
    """Tensors without memory have the shapes and dtypes of results."""
    args, attrs = cases.of(name)
    expected = flat(overload(name)(*args, **attrs))
    without = [
        [one.to("meta") for one in value] if isinstance(value, list) else value.to("meta")
        for value in args
    ]
    if name in ("ray_march", "pack_ray_indices"):
        with pytest.raises(ValueError, match=f"{name}: shapes of its outputs follow from values"):
            overload(name)(*without, **attrs)
        return
    for a, b in zip(flat(overload(name)(*without, **attrs)), expected, strict=True):
        assert a.device.type == "meta" and a.shape == b.shape and a.dtype == b.dtype


def test_strides_do_not_matter() -> None:
    for name in OPS:
        args, attrs = cases.of(name)
        expected = flat(overload(name)(*args, **attrs))
        apart = [
            torch.stack([one, one], -1)[..., 0] if isinstance(one, torch.Tensor) else one
            for one in args
        ]
        for a, b in zip(flat(overload(name)(*apart, **attrs)), expected, strict=True):
            assert torch.equal(a.nan_to_num(), b.nan_to_num()), name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["softshrink", "row_norm", "fused_mlp", "hash_encode", "swiglu"])
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    args, attrs = cases.of(name)
    types = [given.type for given in OPS[name].inputs]
    half = [one.to(dtype) if type_ == "T" else one for one, type_ in zip(args, types, strict=True)]
    result = flat(overload(name)(*half, **attrs))[0]
    wide = [one.float() if type_ == "T" else one for one, type_ in zip(half, types, strict=True)]
    expected = flat(overload(name)(*wide, **attrs))[0]
    assert result.dtype == dtype
    torch.testing.assert_close(result.float(), expected, rtol=0.02, atol=0.02)


def test_the_same_bits_for_every_number_of_threads() -> None:
    n = 40_000
    v = cases.Values()
    inputs = [v.unit(n, 3), v.normal(*cases.GRID.table_shape), cases.OFFSETS]
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found.append(ops.hash_encode(*inputs, **cases.GRID.op_attributes))
            found.append(ops.hash_encode_grad(found[-1], *inputs, **cases.GRID.op_attributes))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[2]) and torch.equal(found[0], found[4])
    assert torch.equal(found[1], found[3]) and torch.equal(found[1], found[5])


# ---- errors ---------------------------------------------------------------------------------------------------------

FLOATS = "float32, float16 or bfloat16"
BIAS = {"fused_ops": ["BiasAdd"]}
ERRORS: list[tuple[Any, str]] = [
    (
        lambda f, x: f.softshrink(x.double()),
        f"softshrink: features must be of dtype {FLOATS}, got float64.",
    ),
    (
        lambda f, x: f.softshrink(x.to(torch.complex64)),
        f"softshrink: features must be of dtype {FLOATS}, got complex64.",
    ),
    (
        lambda f, x: f.softshrink(x, lambd=-1.0),
        "softshrink: lambd must be 0 or more, got -1.",
    ),
    (
        lambda f, x: f.softshrink_grad(x.half(), x),
        "softshrink_grad: features must be of dtype float16 like gradients, got float32.",
    ),
    (
        lambda f, x: f.softshrink_grad(x[:2], x),
        "softshrink_grad: gradients must be shaped like features, [3, 4], got [2, 4].",
    ),
    (
        lambda f, x: f.sh_encode(x[:, :3], degree=9),
        "sh_encode: degree must be between 1 and 8, got 9.",
    ),
    (
        lambda f, x: f.sh_encode(x),
        "sh_encode: directions must have shape [points, 3], got [3, 4].",
    ),
    (
        lambda f, x: f.sh_encode(x[:, :3], T=torch.int32),
        f"sh_encode: T must be {FLOATS}, got int32.",
    ),
    (
        lambda f, x: f.packed_scan(x[0], cases.PACKED.to(x.device), reduction="max"),
        "packed_scan: reduction must be 'sum' or 'prod', got 'max'.",
    ),
    (
        lambda f, x: f.rope(x, x, x),
        "rope: positions must be of dtype int32, got float32.",
    ),
    (
        lambda f, x: f.metal_fused_mat_mul(x, x.T, [x.int()], **BIAS),
        f"metal_fused_mat_mul: args[0] must be of dtype {FLOATS}, got int32.",
    ),
    (
        lambda f, x: f.swiglu(x, x.to("meta")),
        "swiglu: up must be a dense tensor on cpu like all inputs, got one on meta. Move it there: .cpu().",
    ),
]
# The last one mixes devices.
WHERE = [("cpu", call, sentence) for call, sentence in ERRORS]
WHERE += [("meta", call, sentence) for call, sentence in ERRORS[:-1]]


@pytest.mark.parametrize("device, call, sentence", WHERE)
def test_errors(device: str, call: Any, sentence: str) -> None:
    """The same of tensors without memory."""
    with pytest.raises(ValueError) as error:
        call(torch.ops.metal_ops, torch.zeros(3, 4, device=device))
    assert str(error.value) == sentence


def test_errors_while_it_is_compiled() -> None:
    compiled = torch.compile(lambda x: ops.softshrink(x, lambd=-1.0), backend="aot_eager")
    with pytest.raises(Exception, match="softshrink: lambd must be 0 or more, got -1."):
        compiled(torch.zeros(3))
