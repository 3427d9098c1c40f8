"""`metal_library`: the kernels of a whole Metal source, or of a .metallib, as functions."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops.kernel import compiler, launch, layouts, msl
from metal_ops.kernel.stored import Stored, store
from metal_ops.ops import _arguments, _checks

__theme__ = "Metal kernels in Python"
# The limit of values that are copied into each call (setBytes): larger values are tensors.
MOST_COPIED = 4096
MAGIC = (b"\x7fELF", b"MTLB")  # hostmetal's compiled libraries, and Apple's


@dataclass(frozen=True)
class _Binding:
    """One of a kernel's arguments, as the compiled shader has it."""

    name: str
    kind: str  # "buffer", "threadgroup" or "other"
    written: bool
    bytes: int  # of an element, or of a struct
    layout: layouts.Layout | None  # of an element; None where the library does not say
    single: bool  # a reference: the kernel has exactly one element

    @property
    def dtype(self) -> tf.DType | None:
        """The dtype of the numbers in an element, if they have one."""
        return self.layout.dtype if isinstance(self.layout, layouts.Numbers) else None

    @property
    def is_scalar(self) -> bool:
        return isinstance(self.layout, layouts.Numbers) and not self.layout.shape

    def __str__(self) -> str:
        layout = self.layout
        kind = layout.name if isinstance(layout, layouts.Numbers) else f"{self.bytes} bytes"
        return f"{self.name} ({kind}{', written' if self.written else ''})"


class MetalFunction:
    """A kernel of a library, called like a function.

    Attributes:
      name: The kernel's name.
    """

    def __init__(self, library: MetalLibrary, name: str):
        self._library, self.name = library, name
        found = compiler.arguments(name, library._source, library._fast_math, name)
        bindings = [
            _Binding(name, kind, written == "1", int(size), *layouts.read(layout, int(size)))
            for name, kind, written, size, layout in found
        ]
        for i, binding in enumerate(bindings):
            if not binding.name:
                raise TypeError(
                    f"[{self.name}] argument {i} of its {len(bindings)} has no name in the kernel; give it one there."
                )
            if binding.kind == "other":
                raise TypeError(
                    f"[{self.name}] {binding.name}: textures and samplers cannot be given from Python; use buffers."
                )
        self._calls: dict[tuple[tuple[str, ...], tuple[int, ...]], launch.Launches] = {}
        self._buffers = [binding for binding in bindings if binding.kind == "buffer"]
        self._threadgroup = [binding for binding in bindings if binding.kind == "threadgroup"]

    def __repr__(self) -> str:
        return f"<Metal kernel {self.name}({', '.join(map(str, self._buffers))})>"

    def __call__(
        self,
        *arguments: Any,
        outputs: Mapping[str, Any] | None = None,
        grid: Any = None,
        threadgroup: Any = None,
        threadgroup_memory: Mapping[str, Any] | None = None,
        name: str | None = None,
        **by_name: Any,
    ) -> Any:
        """Runs the kernel.

        TensorFlow's tensors do not change, so this returns the arguments that a kernel writes. An argument that it
        writes is either named in `outputs`, by its shape, or given as a tensor: then the result begins as a copy of
        that.

        Args:
          *arguments: The kernel's buffers in the order of their indices, those in `outputs` left out: tensors, numbers
            and lists of them, NumPy arrays; of a struct a dict, a NumPy record or its bytes. A vector is so many
            numbers, a matrix the columns that it has in the shader: [columns, rows].
          outputs: Shapes of arguments that are written only: {"z": x.shape}, or tf.TensorSpec where the kernel does not
            tell the dtype (atomics, structs). For vectors, [..., 3] for a float3.
          grid: Threads, one to three numbers. Without it, one for each element of the first result as the kernel has
            them: a vector or a struct is one.
          threadgroup: Threads of a threadgroup, as the grid. Without it, as many as the kernel allows.
          threadgroup_memory: How many bytes each argument in threadgroup memory has, by its name.
          name: Optional name of the op.
          **by_name: Buffers by their names.

        Returns:
          The arguments that are written, in the order of the kernel's: a tensor, or a tuple of several.

        Raises:
          TypeError: An argument is missing, unknown or of another dtype than the kernel's, or has a number that this
            does not hold: an integer out of range, a finite number that would become infinite.
          ValueError: Numbers or bytes are no whole number of the kernel's elements, or not one for a reference, or a
            shape, grid or threadgroup is impossible.
          tf.errors.UnimplementedError: Inside a function that XLA compiles, or with atomics where ops have to be
            deterministic.
        """
        _checks.refuse_xla(self.name)
        outputs = self._by_name("outputs", outputs, "each one's shape")
        memory = self._by_name("threadgroup_memory", threadgroup_memory, "how many bytes each has")
        given = self._given(arguments, outputs, by_name)
        run = self._run
        if not tf.executing_eagerly():
            # Else tf.function would have AutoGraph convert all that a call runs.
            run = tf.autograph.experimental.do_not_convert(run)
        found = run(given, outputs, grid, threadgroup, memory, name)
        return found[0] if len(found) == 1 else tuple(found)

    def _by_name(self, argument: str, value: Any, what: str) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise TypeError(
                f"[{self.name}] {argument}: expected a dict from names to {what}, got {value!r}."
            )
        return dict(value)

    def _run(
        self,
        given: dict[str, Any],
        outputs: dict[str, Any],
        grid: Any,
        threadgroup: Any,
        memory: dict[str, Any],
        name: str | None,
    ) -> list[tf.Tensor]:
        inputs: list[tf.Tensor] = []
        params: list[tf.Tensor] = []
        results: list[Stored] = []
        copied: list[int] = []
        checks: list[tf.Operation] = []
        bound = []
        n_threads: Any = None
        for binding in self._buffers:
            if binding.name in outputs:
                given_as = self._output(binding, outputs[binding.name], checks)
                copied.append(-1)
            else:
                value = given[binding.name]
                param = None if binding.written else self._param(binding, value)
                if param is not None:
                    bound.append(f"{binding.name}=param:{len(params)}")
                    params.append(param)
                    continue
                given_as = self._tensor(binding, value, checks)
                assert given_as.tensor is not None
                if not binding.written:
                    bound.append(f"{binding.name}=input:{len(inputs)}")
                    inputs.append(given_as.tensor)
                    continue
                copied.append(len(inputs))
                inputs.append(given_as.tensor)
            bound.append(f"{binding.name}=output:{len(results)}")
            results.append(given_as)
            n_threads = given_as.count(binding.bytes) if len(results) == 1 else n_threads
        if not results:
            raise TypeError(f"[{self.name}] writes nothing, so there is nothing to return.")
        grid = n_threads if grid is None else grid
        head = self._head(grid, threadgroup, memory)
        bound += [f"{b.name}=threadgroup:{i}" for i, b in enumerate(self._threadgroup)]
        # An input that an output begins as is no argument of its own.
        packed = launch.pack(head, [result.shape for result in results])
        if checks:  # before anything runs
            with tf.control_dependencies(checks):
                packed = tf.identity(packed)
        launches = self._launches(tuple(bound), tuple(copied))
        found = launches.run(packed, inputs, params, [result.dtype for result in results], name)
        if not tf.executing_eagerly():
            for tensor, result in zip(found, results, strict=True):
                tensor.set_shape(launch.static_shape(result.shape))
        return [
            tensor if result.restored is None else result.restored(tensor)
            for tensor, result in zip(found, results, strict=True)
        ]

    def _launches(self, bound: tuple[str, ...], copied: tuple[int, ...]) -> launch.Launches:
        """By which arguments are inputs, outputs and numbers, which calls may choose."""
        found = self._calls.get((bound, copied))
        if found is None:
            attributes = {
                "source": self._library._source,
                "function": self.name,
                "arguments": bound,
                "copied": copied,
                "atomic": self._library._atomic,
                "fast_math": self._library._fast_math,
            }
            found = self._calls[bound, copied] = launch.Launches(self.name, attributes)
        return found

    def _given(
        self, arguments: tuple[Any, ...], outputs: Mapping[str, Any], by_name: dict[str, Any]
    ) -> dict[str, Any]:
        takes = f"it takes {', '.join(map(str, self._buffers))}"
        names = [binding.name for binding in self._buffers]
        for name in (*outputs, *by_name):
            if name not in names:
                raise TypeError(f"[{self.name}] there is no argument {name!r}; {takes}.")
        for binding in self._buffers:
            if binding.name in outputs and not binding.written:
                raise TypeError(f"[{self.name}] outputs: {binding.name!r} is not written; {takes}.")
            if binding.name in outputs and binding.name in by_name:
                raise TypeError(
                    f"[{self.name}] {binding.name}: given as an argument and in outputs."
                )
        left = [name for name in names if name not in outputs and name not in by_name]
        if len(arguments) > len(left):
            raise TypeError(
                f"[{self.name}] expected {len(left)} arguments ({', '.join(left)}), got {len(arguments)}; {takes}."
            )
        given = {**by_name, **dict(zip(left, arguments, strict=False))}
        for name in left[len(arguments) :]:
            written = next(b.written for b in self._buffers if b.name == name)
            remedy = (
                f" Give its shape, outputs={{{name!r}: ...}}, or the tensor that it begins as."
                if written
                else ""
            )
            raise TypeError(f"[{self.name}] {name}: expected an argument, got none.{remedy}")
        return given

    def _output(self, binding: _Binding, spec: Any, checks: list[tf.Operation]) -> Stored:
        where = f"outputs[{binding.name!r}]"
        dtype = binding.dtype
        if isinstance(spec, tf.TensorSpec):
            asked = msl.type_of(self.name, where, spec.dtype)
            if dtype is not None and asked != dtype:
                raise TypeError(
                    f"[{self.name}] {where}: expected {dtype.name} as in the kernel, got {asked.name}."
                )
            spec, dtype = spec.shape, asked
        if dtype is None:
            raise TypeError(
                f"[{self.name}] {where}: the kernel says {binding.bytes} bytes and no dtype; give "
                "tf.TensorSpec(shape, dtype)."
            )
        sizes = launch.sizes(self.name, where, spec)
        size = binding.bytes
        where = f"[{self.name}] {where}"
        stored = store(where, binding.layout, size, None, sizes, dtype, checks)
        if binding.single:
            stored.need_one(where, size, checks)
        return stored

    def _param(self, binding: _Binding, value: Any) -> tf.Tensor | None:
        """A value that is copied into the call, in host memory; None for tensors, and values that become one."""
        layout = binding.layout
        where = f"[{self.name}] {binding.name}"
        if tf.is_tensor(value) or hasattr(value, "assign") or _arguments.holds_tensors(value):
            return None
        if layouts.are_bytes(value):
            data = layouts.raw(where, value, binding.bytes, binding.single)
        elif layout is None:
            if isinstance(value, np.ndarray) and value.dtype.names:
                data = layouts.raw(where, value, binding.bytes, binding.single)
            elif isinstance(value, Mapping | numbers.Number | np.generic):
                raise TypeError(
                    f"{where}: expected a struct of {layouts.n_bytes(binding.bytes)}, got {value!r}. "
                    "Give its bytes, or a tensor."
                )
            else:
                return None
        elif isinstance(layout, layouts.Numbers) and binding.is_scalar:
            if not isinstance(value, numbers.Number | np.generic | np.ndarray) or np.ndim(value):  # type: ignore[arg-type]
                return None
            with tf.device(launch.HOST):
                return tf.constant(layouts.numbers(where, layout, value), binding.dtype)
        else:
            data = layouts.lay_out(where, layout, value, binding.single)
        if data.size > MOST_COPIED:
            return None
        with tf.device(launch.HOST):
            return tf.constant(data)

    def _tensor(self, binding: _Binding, value: Any, checks: list[tf.Operation]) -> Stored:
        """A value that lies in the device's memory."""
        layout, where = binding.layout, f"[{self.name}] {binding.name}"
        is_tensor = (
            tf.is_tensor(value) or hasattr(value, "assign") or _arguments.holds_tensors(value)
        )
        if binding.written and isinstance(value, layouts.BYTES):
            raise TypeError(f"{where}: expected a tensor, as it is written, got bytes.")
        if layouts.are_bytes(value):
            value = layouts.raw(where, value, binding.bytes, binding.single)
            if isinstance(layout, layouts.Numbers):
                value = value.view(layout.dtype.as_numpy_dtype).reshape(-1, *layout.stored)
        elif (
            not is_tensor
            and layout is not None
            and not (binding.is_scalar and hasattr(value, "dtype"))
        ):
            if isinstance(layout, layouts.Numbers):
                value = layouts.numbers(where, layout, value)
                layouts.whole(where, layout, value.shape, binding.single)
            elif binding.written:
                raise TypeError(
                    f"{where}: expected a tensor, as it is written, got {type(value).__name__}."
                )
            else:
                value = layouts.lay_out(where, layout, value, binding.single)
        chosen = hasattr(value, "dtype") or hasattr(value, "assign")
        tensor = _arguments.convert(
            self.name, binding.name, value, None if chosen else binding.dtype
        )
        msl.type_of(self.name, binding.name, tensor.dtype)
        expected = layout.dtype if layout is not None else None
        raw = not isinstance(layout, layouts.Numbers) and tensor.dtype == tf.uint8
        if expected is not None and tensor.dtype != expected and not raw:
            kind = layout.name if isinstance(layout, layouts.Numbers) else str(layout)
            raise TypeError(
                f"{where}: expected {expected.name} ({kind}), got "
                f"{tensor.dtype.name}. Cast it first: tf.cast({binding.name}, tf.{expected.name})."
            )
        if isinstance(layout, layouts.Record | layouts.Several) and expected is None and not raw:
            raise TypeError(
                f"{where}: expected {layout}: dicts, a NumPy structured array, or the bytes as uint8, got "
                f"{tensor.dtype.name}. The members are of several types: a tensor's numbers would be reinterpreted."
            )
        shape = launch.view(tensor).shape
        sizes = list(shape) if isinstance(shape, tuple) else shape
        stored = store(where, layout, binding.bytes, tensor, sizes, tensor.dtype, checks)
        if binding.single:
            stored.need_one(where, binding.bytes, checks)
        return stored

    def _head(self, grid: Any, threadgroup: Any, memory: dict[str, Any]) -> list[Any]:
        head = launch.three(self.name, "grid", grid, 0)
        head += (
            [0, 0, 0]
            if threadgroup is None
            else launch.three(self.name, "threadgroup", threadgroup, 1)
        )
        for binding in self._threadgroup:
            if binding.name not in memory:
                raise TypeError(
                    f"[{self.name}] threadgroup_memory: expected how many bytes {binding.name!r} has, got none."
                )
            where = f"threadgroup_memory[{binding.name!r}]"
            head.append(launch.number(self.name, where, memory.pop(binding.name), 1))
        if memory:
            known = ", ".join(binding.name for binding in self._threadgroup) or "none"
            raise TypeError(
                f"[{self.name}] threadgroup_memory: there is no {', '.join(map(repr, memory))}; its arguments are: "
                f"{known}."
            )
        return head


class MetalLibrary:
    """Compiled shaders; each kernel is an attribute, a `MetalFunction`.

    Attributes:
      functions: The names of the kernels.
    """

    def __init__(self, source: bytes, fast_math: bool, atomic: bool, functions: list[str]):
        self._source, self._fast_math, self._atomic = source, fast_math, atomic
        self.functions = tuple(functions)
        self._made: dict[str, MetalFunction] = {}

    def __getattr__(self, name: str) -> MetalFunction:
        if name.startswith("_") and name not in self.__dict__.get("functions", ()):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> MetalFunction:
        """A kernel by its name, which may be none that Python allows."""
        if name not in self.functions:
            raise AttributeError(
                f"the Metal library has no kernel {name!r}; it has {', '.join(self.functions) or 'none'}."
            )
        if name not in self._made:
            self._made[name] = MetalFunction(self, name)
        return self._made[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.functions]

    def __repr__(self) -> str:
        return f"<Metal library of {', '.join(self.functions)}>"


def metal_library(
    source_or_path: str | os.PathLike[str], *, math_mode: str = "safe", verbose: bool = False
) -> MetalLibrary:
    """Compiles Metal source, or loads a .metallib, and gives its kernels as functions.

    Args:
      source_or_path: MSL as text; or the path of a .metal or .metallib file.
      math_mode: "safe", or "fast": the compiler may reorder and approximate. A .metallib has been compiled already.
      verbose: Print the compiled text.

    Returns:
      A library whose kernels are attributes: `lib.axpy(x, y, 2.0, outputs={"z": x.shape})`.

    Raises:
      TypeError: An argument is of a wrong type.
      ValueError: math_mode is another word, or the file is no library.
      FileNotFoundError: There is no such file.
      SyntaxError: There is a mistake in the source.

    Example:
      >>> lib = metal_ops.metal_library('''
      ...     kernel void full(device float* out, constant float& value, uint i [[thread_position_in_grid]]) {
      ...       out[i] = value;
      ...     }''')
      >>> lib.full(3.5, outputs={"out": [3]}).numpy()
      array([3.5, 3.5, 3.5], dtype=float32)
    """
    label = "metal_library"
    if math_mode not in ("safe", "fast"):
        raise ValueError(f"[{label}] math_mode: expected 'safe' or 'fast', got {math_mode!r}.")
    verbose = _arguments.flag(label, "verbose", verbose)
    path = _path(source_or_path)
    if path is None:
        if not isinstance(source_or_path, str):
            raise TypeError(
                f"[{label}] source_or_path: expected text or a path, got {type(source_or_path).__name__}."
            )
        code, name = source_or_path.encode(), "<metal_library>"
    else:
        if not path.is_file():
            raise FileNotFoundError(f"[{label}] there is no file {str(path)!r}.")
        code, name = path.read_bytes(), str(path)
    texts = {}
    compiled = code.startswith(MAGIC)
    if path is not None and path.suffix == ".metallib" and not compiled:
        raise ValueError(
            f"[{label}] {str(path)!r} is no Metal library; make one: python -m metal_ops metal x.metal -o x.metallib."
        )
    if not compiled:
        try:
            text = code.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"[{label}] {name}: expected text in UTF-8; {error}.") from None
        texts[name] = text
        shown = name.replace("\\", "\\\\").replace('"', '\\"')
        code = f'#line 1 "{shown}"\n{text}\n'.encode()
        if verbose:
            print(f"{label} {name}:\n{text}")
    # Compiled shaders do not tell whether they use atomics.
    atomic = compiled or any(word.startswith("atomic") for word in msl.words(text))
    fast = math_mode == "fast"
    return MetalLibrary(code, fast, atomic, compiler.functions(label, code, fast, texts))


def _path(source_or_path: Any) -> Path | None:
    if isinstance(source_or_path, os.PathLike):
        return Path(source_or_path)
    is_path = isinstance(source_or_path, str) and "\n" not in source_or_path
    return (
        Path(source_or_path)
        if is_path and source_or_path.endswith((".metal", ".metallib"))
        else None
    )
