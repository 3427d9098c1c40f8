"""The parts of an op beside its kernel: shapes of tensors without memory, and gradients. All of it follows from the
op's declaration."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from metal_ops.torch import _declared
from metal_ops.torch._declared import Input, Op, Rule

# For as long as the process runs: PyTorch forgets what a library that ends has registered.
LIBRARY = torch.library.Library("metal_ops", "FRAGMENT")


def register() -> None:
    """Registers all ops of the library."""
    for op in _declared.ops().values():
        name = f"metal_ops::{op.name}"
        for overload in (name, f"{name}.kernel"):
            torch.library.register_fake(overload, _fake(op), lib=LIBRARY)
        if any(_may_have_gradient(given) for given in op.inputs):
            torch.library.register_autograd(
                name, _backward(op), setup_context=_setup(op), lib=LIBRARY
            )


def _may_have_gradient(given: Input) -> bool:
    return not re.fullmatch(r"u?int\d+|bool|Tindices", given.type)


def _overload(op: Op) -> Any:
    return getattr(torch.ops.metal_ops, op.name).default


# ---- shapes ---------------------------------------------------------------------------------------------------------


# The number that stands for a size that is a symbol, and the distance of the next one. Below 0 a size is not known, and
# near 0 numbers mean something else in checks of shapes. The others are no sizes that programs have.
UNKNOWN = (-1000, -1)
STANDS_FOR = ((1_000_003, 2), (3_000_017, 14))


class _Sizes:
    """Sizes as the library reads them. standing: as above; None: symbols are their values, for which the program is
    compiled then."""

    def __init__(self, standing: tuple[int, int] | None) -> None:
        self.standing = standing
        self.symbols: dict[int, Any] = {}

    def text(self, shape: Sequence[Any]) -> str:
        return ",".join(str(self.number(size)) for size in shape)

    def number(self, size: Any) -> int:
        if isinstance(size, int) or self.standing is None:
            return int(size)
        for number, known in self.symbols.items():
            if str(known) == str(size):
                return number
        first, distance = self.standing
        number = first + distance * len(self.symbols)
        self.symbols[number] = size
        return number

    def size(self, number: int) -> Any:
        return self.symbols.get(number, number)


def _fake(op: Op) -> Callable[..., Any]:
    def fake(*args: Any, **attrs: Any) -> Any:
        shapes = _shapes(op, args, attrs, UNKNOWN)
        if any(shape is None for _, shape in shapes):
            shapes = _tried(op, args, attrs) or _shapes(op, args, attrs, None)
        device = _first_tensor(args).device
        outputs = []
        for dtype, shape in shapes:
            if shape is None:
                raise ValueError(f"{op.name}: shapes of its outputs are known in a call only.")
            outputs.append(torch.empty(shape, dtype=getattr(torch, dtype), device=device))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return fake


Shapes = list[tuple[str, list[Any] | None]]


def _tried(op: Op, args: Sequence[Any], attrs: dict[str, Any]) -> Shapes | None:
    """Shapes that are found by trying two numbers for each symbol: sizes that follow one of them both times are it, and
    sizes that are the same both times are no symbol's. None: there are others."""
    try:
        first, second = (_shapes(op, args, attrs, standing) for standing in STANDS_FOR)
    except ValueError:
        return None
    same = all(
        a is not None and b is not None and [str(size) for size in a] == [str(size) for size in b]
        for (_, a), (_, b) in zip(first, second, strict=True)
    )
    return first if same else None


def _shapes(
    op: Op, args: Sequence[Any], attrs: dict[str, Any], standing: tuple[int, int] | None
) -> Shapes:
    """Dtype and shape of each output; None: the shape does not follow from symbols."""
    sizes = _Sizes(standing)
    lines = []
    device = _first_tensor(args).device.type
    for given, value in zip(op.inputs, args, strict=True):
        lines.append("input")
        for tensor in value if given.is_list else [value]:
            if tensor.device.type != device or device not in ("cpu", "meta"):
                expected = device if device == "meta" else "cpu"
                raise ValueError(
                    f"{op.name}: {given.name} must be a dense tensor on {expected} like all inputs, got one on "
                    f"{tensor.device}. Move it there: .{expected}()."
                )
            dtype = str(tensor.dtype).removeprefix("torch.")
            lines.append(f"tensor\t{dtype}\t{sizes.text(tensor.shape)}")
    for name, default in op.attrs.items():
        value = attrs.get(name)
        lines.append(f"attr\t{name}\t{_default(default) if value is None else _text(value)}")
    return [
        (dtype, _shape(op, output.shape, dims, sizes, args))
        for output, (dtype, dims) in zip(
            op.outputs, _declared.infer(op, "\n".join(lines)), strict=True
        )
    ]


def _first_tensor(args: Sequence[Any]) -> torch.Tensor:
    return next(one for value in args for one in (value if isinstance(value, list) else [value]))


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "".join(f"{one}\x1f" for one in value)
    return str(value).removeprefix("torch.")


def _default(text: str) -> str:
    """As the library reads a value. Types have their defaults there."""
    if text.startswith("["):
        return "".join(f"{one.strip()}\x1f" for one in text[1:-1].split(",") if one.strip())
    return {"true": "True", "false": "False"}.get(text, text.strip("'"))


def _shape(
    op: Op, declared: str, dims: list[int] | None, sizes: _Sizes, args: Sequence[Any]
) -> list[Any] | None:
    """The shape of an output, with the symbols of the inputs'."""
    names = declared[1:-1].split(",") if declared.startswith("[") else []
    if dims is None:
        return None
    shape = []
    for i, number in enumerate(dims):
        size = sizes.size(number)
        if number == -1:
            if not names:
                return None
            size = _product(op, names[i], args)
            if size is None:
                size = _size_of_values(op)
        shape.append(size)
    return shape


def _size_of_values(op: Op) -> Any:
    """A size that follows from values."""
    try:
        return torch.library.get_ctx().new_dynamic_size()
    except RuntimeError:
        raise ValueError(
            f"{op.name}: shapes of its outputs follow from values, which tensors on meta do not have."
        ) from None


def _product(op: Op, text: str, args: Sequence[Any]) -> Any:
    """A dimension such as "levels*features", from the sizes that inputs have; None: no input has them."""
    found: Any = 1
    for factor in text.split("*"):
        size = _size(op, factor.strip(), args)
        if size is None:
            return None
        found = found * size
    return found


def _size(op: Op, name: str, args: Sequence[Any]) -> Any:
    if name.isdigit():
        return int(name)
    for given, value in zip(op.inputs, args, strict=True):
        if given.is_list or not given.shape.startswith("["):
            continue
        for i, dim in enumerate(given.shape[1:-1].split(",")):
            base, _, more = dim.strip().partition(" + ")
            if base == name:
                return value.shape[i] - int(more or 0)
    return None


# ---- gradients ------------------------------------------------------------------------------------------------------


def _setup(op: Op) -> Callable[..., None]:
    names = {name for rule in op.rules for name in rule.names}
    saved_inputs = [i for i, given in enumerate(op.inputs) if given.name in names]
    saved_outputs = [i for i, output in enumerate(op.outputs) if output.name in names]
    incoming = {name.split()[1] for name in names if name.startswith(("d ", "d? "))}
    constant = [i for i, output in enumerate(op.outputs) if output.name not in incoming]
    empty = any(name.startswith("d? ") for name in names)

    def setup(
        ctx: Any, inputs: Sequence[Any], output: Any, keyword_only_inputs: Any = None
    ) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        if not op.rules:
            return
        tensors = [inputs[i] for i in saved_inputs] + [outputs[i] for i in saved_outputs]
        ctx.save_for_backward(*tensors)
        ctx.names = [op.inputs[i].name for i in saved_inputs]
        ctx.names += [op.outputs[i].name for i in saved_outputs]
        ctx.attrs = keyword_only_inputs or {}
        ctx.shapes = [None if isinstance(value, list) else value.shape for value in inputs]
        ctx.dtypes = [None if isinstance(value, list) else value.dtype for value in inputs]
        ctx.mark_non_differentiable(*(outputs[i] for i in constant))
        if empty:
            ctx.set_materialize_grads(False)

    return setup


def _backward(op: Op) -> Callable[..., Any]:
    def backward(ctx: Any, *incoming: Any) -> Any:
        if not op.rules:
            raise NotImplementedError(
                f"{op.name}: derivatives of it are not provided. Stop the gradient before it: .detach()."
            )
        values: dict[str, Any] = dict(zip(ctx.names, ctx.saved_tensors, strict=True))
        for output, gradient in zip(op.outputs, incoming, strict=True):
            values[f"d {output.name}"] = gradient
            values[f"d? {output.name}"] = (
                _none(output.shape, values) if gradient is None else gradient.contiguous()
            )
        gradients: list[Any] = [None] * len(op.inputs)
        attrs = {
            name: value for name, value in ctx.attrs.items() if not isinstance(value, torch.dtype)
        }
        for rule in op.rules:
            wanted = [
                target != "_" and ctx.needs_input_grad[op.input(target)] for target in rule.targets
            ]
            if not any(wanted) or not _holds(rule.condition, attrs):
                continue
            found = _carried_out(op, rule, values, attrs, ctx)
            for target, is_wanted, gradient in zip(rule.targets, wanted, found, strict=True):
                at = op.input(target)
                # An empty input stands for none.
                if is_wanted and (gradient.shape == ctx.shapes[at] or 0 not in ctx.shapes[at]):
                    gradients[at] = gradient
        return tuple(gradients) if len(gradients) > 1 else gradients[0]

    return backward


def _none(shape: str, values: dict[str, Any]) -> torch.Tensor:
    """The empty gradient by which a kernel knows that there is none and reads nothing."""
    rank = len(shape[1:-1].split(",")) if shape.startswith("[") else 1
    like = next(value for value in values.values() if isinstance(value, torch.Tensor))
    return torch.empty([0] * rank, dtype=torch.float32, device=like.device)


def _holds(condition: str, attrs: dict[str, Any]) -> bool:
    name, equals, text = condition.partition("=")
    if equals:
        return bool(attrs[name] == text)
    if name.startswith("!"):
        return not attrs[name[1:]]
    return not name or bool(attrs[name])


def _carried_out(
    op: Op, rule: Rule, values: dict[str, Any], attrs: dict[str, Any], ctx: Any
) -> Sequence[torch.Tensor]:
    other = _declared.ops()[rule.op]
    given = {name: value for name, value in attrs.items() if name in other.attrs}
    for name, text in rule.attrs.items():
        kind, _, of = text.partition(" ")
        if kind == "wanted":
            given[name] = ctx.needs_input_grad[op.input(of)]
        elif kind == "size":
            given[name] = next(
                ctx.shapes[i][dims.index(of)]
                for i, dims in enumerate(_dims(one.shape) for one in op.inputs)
                if of in dims
            )
        elif kind == "type":
            given[name] = ctx.dtypes[op.input(of)]
        else:
            given[name] = not attrs[text[1:]]
    found = _overload(other)(*(values[name] for name in rule.arguments), **given)
    if rule.product_with:
        found = values[rule.product_with] @ found
    outputs: Sequence[torch.Tensor] = found if isinstance(found, tuple) else (found,)
    return [-one for one in outputs] if rule.negative else outputs


def _dims(shape: str) -> list[str]:
    return [dim.strip() for dim in shape[1:-1].split(",")] if shape.startswith("[") else []
