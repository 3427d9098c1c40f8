"""`metal_library`: the kernels of a whole Metal source, or of a .metallib, as functions."""

from __future__ import annotations

import functools
import numbers
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from metal_ops.kernel import compiler, launch, msl
from metal_ops.ops import _arguments, _checks

__theme__ = "Metal kernels in Python"
MAGIC = (b"\x7fELF", b"MTLB")  # hostmetal's compiled libraries, and Apple's


@dataclass(frozen=True)
class _Binding:
    """One of a kernel's arguments, as the compiled shader has it."""

    name: str
    kind: str  # "buffer", "threadgroup" or "other"
    written: bool
    bytes: int  # of an element, or of a struct
    type: str  # of an element; "-" for what is no scalar

    @property
    def dtype(self) -> tf.DType | None:
        return msl.DTYPES.get(self.type)

    def __str__(self) -> str:
        kind = self.type if self.dtype else f"{self.bytes} bytes"
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
            _Binding(name, kind, written == "1", int(size), kind_of)
            for name, kind, written, size, kind_of in found
        ]
        for binding in bindings:
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

        TensorFlow's tensors do not change, so what a kernel writes is what this returns. An argument that it writes is
        either named in `outputs`, by its shape, or given as a tensor: then the result begins as a copy of that.

        Args:
          *arguments: The kernel's buffers in the order of their indices, those in `outputs` left out: tensors,
            numbers, or the bytes of a struct (also as a NumPy array).
          outputs: Shapes of arguments that are written only: {"z": x.shape}, or tf.TensorSpec where the kernel does not
            tell the dtype (vectors, atomics, structs).
          grid: Threads, one to three numbers. Without it, one for each element of the first result.
          threadgroup: Threads of a threadgroup, as the grid. Without it, as many as the kernel allows.
          threadgroup_memory: How many bytes each argument in threadgroup memory has, by its name.
          name: Optional name of the op.
          **by_name: Buffers by their names.

        Returns:
          What is written, in the order of the kernel's arguments: a tensor, or a tuple of several.

        Raises:
          TypeError: An argument is missing, unknown or of another dtype than the kernel's.
          ValueError: A struct has another size, or a shape, grid or threadgroup is impossible.
          tf.errors.UnimplementedError: Inside a function that XLA compiles, or with atomics where ops have to be
            deterministic.
        """
        _checks.refuse_xla(self.name)
        outputs = dict(outputs or {})
        given = self._given(arguments, outputs, by_name)
        inputs: list[tf.Tensor] = []
        params: list[tf.Tensor] = []
        shapes: list[Any] = []
        dtypes: list[tf.DType] = []
        copied: list[int] = []
        bound = []
        for binding in self._buffers:
            if binding.name in outputs:
                bound.append(f"{binding.name}=output:{len(shapes)}")
                shape, dtype = self._output(binding, outputs[binding.name])
                shapes.append(shape)
                dtypes.append(dtype)
                copied.append(-1)
                continue
            value = given[binding.name]
            if not binding.written and self._is_param(value):
                bound.append(f"{binding.name}=param:{len(params)}")
                params.append(self._param(binding, value))
                continue
            tensor = self._tensor(binding, value)
            if binding.written:
                bound.append(f"{binding.name}=output:{len(shapes)}")
                copied.append(len(inputs))
                shapes.append(launch.view(tensor).shape)
                dtypes.append(tensor.dtype)
            else:
                bound.append(f"{binding.name}=input:{len(inputs)}")
            inputs.append(tensor)
        if not shapes:
            raise TypeError(f"[{self.name}] writes nothing, so there is nothing to return.")
        head = self._head(grid, threadgroup, dict(threadgroup_memory or {}), shapes[0])
        bound += [f"{b.name}=threadgroup:{i}" for i, b in enumerate(self._threadgroup)]
        # An input that an output begins as is no argument of its own.
        packed = launch.pack(head, shapes)
        launches = self._launches(tuple(bound), tuple(copied))
        results = launches.run(packed, inputs, params, dtypes, name)
        if not tf.executing_eagerly():
            for result, shape in zip(results, shapes, strict=True):
                result.set_shape(launch.static_shape(shape))
        return results[0] if len(results) == 1 else tuple(results)

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

    def _output(self, binding: _Binding, spec: Any) -> tuple[Any, tf.DType]:
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
        return launch.sizes(self.name, where, spec), dtype

    @staticmethod
    def _is_param(value: Any) -> bool:
        if isinstance(value, np.ndarray):
            return value.dtype.kind == "V" or (value.ndim == 0 and value.dtype.kind != "O")
        return isinstance(value, numbers.Number | np.generic | bytes | bytearray | memoryview)

    def _param(self, binding: _Binding, value: Any) -> tf.Tensor:
        with tf.device(launch.HOST):
            is_struct = isinstance(value, bytes | bytearray | memoryview | np.void) or (
                isinstance(value, np.ndarray) and value.dtype.kind == "V"
            )
            if not is_struct:
                if binding.dtype is None:
                    raise TypeError(
                        f"[{self.name}] {binding.name}: expected a struct of {binding.bytes} bytes, got {value!r}. "
                        "Give its bytes, or a tensor."
                    )
                return _arguments.convert(self.name, binding.name, value, binding.dtype)
            data = value.tobytes() if hasattr(value, "tobytes") else bytes(value)
            if len(data) != binding.bytes:
                raise ValueError(
                    f"[{self.name}] {binding.name}: expected {binding.bytes} bytes, got {len(data)}."
                )
            return tf.constant(np.frombuffer(data, np.uint8))

    def _tensor(self, binding: _Binding, value: Any) -> tf.Tensor:
        if isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(
                f"[{self.name}] {binding.name}: expected a tensor, as it is written, got bytes."
            )
        chosen = tf.is_tensor(value) or hasattr(value, "assign") or hasattr(value, "dtype")
        tensor = _arguments.convert(
            self.name, binding.name, value, None if chosen else binding.dtype
        )
        msl.type_of(self.name, binding.name, tensor.dtype)
        if binding.dtype is not None and tensor.dtype != binding.dtype:
            raise TypeError(
                f"[{self.name}] {binding.name}: expected {binding.dtype.name} ({binding.type}), got "
                f"{tensor.dtype.name}. Cast it first: tf.cast({binding.name}, tf.{binding.dtype.name})."
            )
        return tensor

    def _head(self, grid: Any, threadgroup: Any, memory: dict[str, Any], first: Any) -> list[Any]:
        if grid is None:
            with tf.device(launch.HOST):
                grid = (
                    tf.reduce_prod(first)
                    if tf.is_tensor(first)
                    else functools.reduce(lambda a, b: a * b, first, 1)
                )
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
      verbose: Print what is compiled.

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
