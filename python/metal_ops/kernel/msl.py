"""The text of a kernel: its signature and the code around the user's body."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops.ops import _arguments

TYPES = {
    tf.float32: "float",
    tf.float16: "half",
    tf.bfloat16: "bfloat",
    tf.int8: "char",
    tf.int16: "short",
    tf.int32: "int",
    tf.int64: "long",
    tf.uint8: "uchar",
    tf.uint16: "ushort",
    tf.uint32: "uint",
    tf.uint64: "ulong",
    tf.bool: "bool",
}
DTYPES = {name: dtype for dtype, name in TYPES.items()}
# Those with an atomic<T> in Metal 3.1.
ATOMICS = (tf.int32, tf.uint32, tf.float32)

# The names in a kernel's body, and their types.
THREADS = {
    **dict.fromkeys(
        (
            *("thread_position_in_grid", "thread_position_in_threadgroup", "threads_per_grid"),
            *("threadgroup_position_in_grid", "threads_per_threadgroup", "threadgroups_per_grid"),
            "dispatch_threads_per_threadgroup",
        ),
        "uint3",
    ),
    **dict.fromkeys(
        (
            *("thread_index_in_threadgroup", "thread_index_in_simdgroup", "threads_per_simdgroup"),
            *("simdgroup_index_in_threadgroup", "simdgroups_per_threadgroup"),
            *("thread_execution_width", "dispatch_simdgroups_per_threadgroup"),
            *("thread_index_in_quadgroup", "quadgroup_index_in_threadgroup"),
        ),
        "uint",
    ),
}
# The properties of an input or output that a body may use.
PROPERTIES = {
    "shape": "constant int* {}_shape",
    "strides": "constant long* {}_strides",
    "ndim": "constant int& {}_ndim",
    "size": "constant uint& {}_size",
}
KEYWORDS = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor break case catch class compl concept const const_cast consteval
    constexpr constinit continue co_await co_return co_yield decltype default delete do double dynamic_cast else
    enum explicit export extern false final for friend goto if inline int long mutable namespace new noexcept not
    not_eq nullptr operator or or_eq override private protected public register reinterpret_cast requires return
    short signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
    typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq bool char float
    kernel vertex fragment mesh object device constant threadgroup threadgroup_imageblock thread ray_data
    object_data metal half bfloat atomic array sampler texture size_t ptrdiff_t uint8_t int8_t uint16_t int16_t
    uint32_t int32_t uint64_t int64_t""".split()
)
VECTOR = re.compile(
    r"(?:bool|char|uchar|short|ushort|int|uint|long|ulong|half|float|bfloat)(?:[234](?:x[234])?)?"
)
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Comments, strings and characters, which name nothing.
SILENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.S)
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


def check_name(label: str, argument: str, name: Any) -> str:
    """The name of a kernel or of one of its arguments.

    Raises:
      TypeError: It is no text.
      ValueError: It is no identifier, or one that the language has taken.
    """
    if not isinstance(name, str):
        raise TypeError(f"[{label}] {argument}: expected a name, got {name!r}.")
    if not IDENTIFIER.fullmatch(name) or "__" in name or len(name) > 96:
        raise ValueError(
            f"[{label}] {argument}: {name!r} is no name of a shader's argument; expected letters, digits and single "
            "underscores, 96 at most, no digit first."
        )
    if name in KEYWORDS or VECTOR.fullmatch(name) or name in THREADS:
        raise ValueError(
            f"[{label}] {argument}: {name!r} is a word of the Metal language; choose another."
        )
    return name


def words(text: str) -> frozenset[str]:
    """The identifiers of a text, those in comments and strings left out."""
    return frozenset(IDENTIFIER.findall(SILENT.sub(" ", text)))


def type_of(label: str, argument: str, dtype: Any) -> tf.DType:
    """A dtype that shaders calculate in.

    Raises:
      TypeError: It is none.
    """
    try:
        found = tf.as_dtype(DTYPES.get(dtype, dtype) if isinstance(dtype, str) else dtype)
    except TypeError:
        found = None
    if found not in TYPES:
        names = ", ".join(known.name for known in TYPES)
        raise TypeError(
            f"[{label}] {argument}: shaders have no {getattr(found, 'name', repr(dtype))}; expected one of {names}. "
            "Cast it first: tf.cast(..., tf.float32)."
        )
    return found


@dataclass(frozen=True)
class Text:
    """The compiled text, and its arguments.

    Attributes:
      source: The whole text.
      arguments: The op's attribute `arguments`.
    """

    source: str
    arguments: tuple[str, ...] = field(default=())


@dataclass(frozen=True)
class Body:
    """A kernel as its user wrote it."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: Mapping[str, tf.DType]
    source: str
    header: str
    threadgroup: Mapping[str, tf.DType]
    atomic: bool
    init: Any

    def text(
        self,
        inputs: Sequence[tf.DType],
        outputs: Sequence[tf.DType],
        template: Mapping[str, Any],
    ) -> Text:
        """The shader for these dtypes."""
        said = words(self.source) | words(self.header)
        named = {*self.inputs, *self.outputs, *self.params, *self.threadgroup, *template}
        declared, arguments = [], []

        def add(declaration: str, name: str, kind: str, number: int) -> None:
            declared.append(declaration)
            arguments.append(f"{name}={kind}:{number}")

        for i, (name, dtype) in enumerate(zip(self.inputs, inputs, strict=True)):
            add(f"device const {TYPES[dtype]}* {name}", name, "input", i)
        for i, (name, dtype) in enumerate(zip(self.outputs, outputs, strict=True)):
            kind = f"atomic<{TYPES[dtype]}>" if self.atomic else TYPES[dtype]
            add(f"device {kind}* {name}", name, "output", i)
        for i, (name, dtype) in enumerate(self.params.items()):
            add(f"constant {TYPES[dtype]}& {name}", name, "param", i)
        for i, name in enumerate((*self.inputs, *self.outputs)):
            for kind, declaration in PROPERTIES.items():
                asked = f"{name}_{kind}"
                if asked in said and asked not in named:
                    add(declaration.format(name), asked, kind, i)
        signature = [f"{text} [[buffer({i})]]" for i, text in enumerate(declared)]
        for i, (name, dtype) in enumerate(self.threadgroup.items()):
            signature.append(f"threadgroup {TYPES[dtype]}* {name} [[threadgroup({i})]]")
            arguments.append(f"{name}=threadgroup:{i}")
        short = "i" in said and "i" not in named
        for name, kind in THREADS.items():
            if name in said or (short and name == "thread_position_in_grid"):
                signature.append(f"{kind} {name} [[{name}]]")
        # `i` stands outside of the body's own block, where it may be declared anew.
        prologue = "  const uint i = thread_position_in_grid.x;\n  (void)i;\n" if short else ""
        lines = [
            HEAD,
            *(_constant(name, value) for name, value in template.items()),
            *_included(self.header, f"<header of {self.name}>"),
            *(self._initializer(i, dtype) for i, dtype in enumerate(outputs) if self.init is not None),
            f"kernel void {self.name}(\n    " + ",\n    ".join(signature) + ") {\n" + prologue + "  {\n",
            *_included(self.source, f"<source of {self.name}>"),
            "  }\n}\n",
        ]  # fmt: skip
        return Text("".join(lines), tuple(arguments))

    def _initializer(self, output: int, dtype: tf.DType) -> str:
        kind = TYPES[dtype]
        return (
            f"kernel void {self.name}_init_{output}(device {kind}* out [[buffer(0)]],\n"
            "    constant ulong& n_elements [[buffer(1)]], uint2 position [[thread_position_in_grid]],\n"
            "    uint2 threads [[threads_per_grid]]) {\n"
            "  const ulong at = ulong(position.y) * threads.x + position.x;\n"
            f"  if (at < n_elements) out[at] = {literal(self.init, dtype)};\n"
            "}\n"
        )


def holds(dtype: tf.DType, value: Any) -> bool:
    """Whether a number is one of the dtype's; floats are rounded, and no finite number becomes infinite."""
    if value is None:
        return True
    if dtype.is_floating:
        return _arguments.outside(np.asarray(value), dtype) is None
    if dtype == tf.bool:
        return value in (0, 1)
    return dtype.min <= value <= dtype.max and value == int(value)


def unheld(dtype: tf.DType, value: Any) -> str:
    """The error of a number that is none of the dtype's."""
    return " ".join(_arguments.unheld(value, dtype))


def literal(value: Any, dtype: tf.DType) -> str:
    """A number as MSL writes it."""
    kind = TYPES[dtype]
    if dtype == tf.bool:
        return "true" if value else "false"
    if dtype.is_integer:
        # The lowest int has no literal of its own.
        bits = int(np.asarray(value, dtype.as_numpy_dtype).view(f"u{dtype.size}"))
        return f"{kind}({bits}ul)"
    number = float(value)
    if number != number:
        return f"{kind}(NAN)"
    if number in (float("inf"), float("-inf")):
        return f"{kind}({'-' if number < 0 else ''}INFINITY)"
    return f"{kind}({np.format_float_scientific(np.float32(number), trim='0')}f)"


def _constant(name: str, value: Any) -> str:
    if isinstance(value, tf.DType):
        return f"using {name} = {TYPES[value]};\n"
    if isinstance(value, bool):
        return f"constant constexpr bool {name} = {'true' if value else 'false'};\n"
    return f"constant constexpr {'int' if -(2**31) < value < 2**31 else 'long'} {name} = {value};\n"


def _included(text: str, name: str) -> Iterable[str]:
    """The text under a name of its own, so that messages say lines of it."""
    if text:
        yield f'#line 1 "{name}"\n{text}\n#line 1 "<generated>"\n'
