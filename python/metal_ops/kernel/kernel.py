"""`metal_kernel`: a shader's body as a TensorFlow op."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from metal_ops.kernel import compiler, dims, launch, msl
from metal_ops.kernel.functions import ByName, resolve
from metal_ops.ops import _arguments, _checks

__theme__ = "Metal kernels in Python"

# Launches that are remembered: sizes that change from step to step must not fill the memory.
MOST_PLANS = 512
ARGUMENTS = 31  # Metal's buffer indices


@dataclass(frozen=True)
class _Plan:
    """A call for inputs of known dtypes and shapes."""

    compiled: launch.Launches
    dtypes: tuple[tf.DType, ...]
    numbers: tf.Tensor
    shapes: tuple[tf.TensorShape, ...]


class _Ready(NamedTuple):
    """A call outside of graphs, without its inputs."""

    compiled: launch.Launches
    launched: tf.Tensor
    scalars: tuple[tf.Tensor, ...]
    dtypes: tuple[int, ...]  # as numbers, which TensorFlow reads faster


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= MOST_PLANS:
        known.clear()
    known[key] = value


class MetalKernel:
    """A shader that is called like a function: the result of `metal_ops.metal_kernel`.

    Attributes:
      name: The kernel's name.
      inputs: The names of its inputs.
      outputs: The names of its outputs.
      params: The dtypes of its parameters by their names.
    """

    def __init__(
        self,
        body: msl.Body,
        words: Mapping[str, dims.Words],
        shapes: Any,
        dtypes: Any,
        template: Mapping[str, Any],
        grid: Any,
        threadgroup: Any,
        threadgroup_sizes: Mapping[str, Any],
        vjp: Any,
        fast_math: bool,
        verbose: bool,
    ):
        self._body, self._words = body, words
        self.name, self.inputs, self.outputs = body.name, body.inputs, body.outputs
        self.params: dict[str, tf.DType] = dict(body.params)
        given = {
            "shapes": shapes,
            "dtypes": dtypes,
            "grid": grid,
            "threadgroup": threadgroup,
            **{f"template[{name!r}]": value for name, value in template.items()},
            **{f"threadgroup_memory[{name!r}]": value for name, value in threadgroup_sizes.items()},
        }
        names = (*self.inputs, *self.params)
        functions = {
            key: ByName(self.name, key, value, names)
            if callable(value) and not isinstance(value, tf.DType)
            else value
            for key, value in given.items()
        }
        self._functions = functions
        self._template = {name: functions[f"template[{name!r}]"] for name in template}
        self._threadgroup_sizes = {
            name: functions[f"threadgroup_memory[{name!r}]"] for name in threadgroup_sizes
        }
        wanted = {
            name
            for value in functions.values()
            if isinstance(value, ByName)
            for name in value.wanted
        }
        # Most functions look at inputs alone: then a call with another number needs no new plan.
        self._planned_params = tuple(name for name in self.params if name in wanted)
        self._fast_math, self._verbose = fast_math, verbose
        self._vjp = self._check_vjp(vjp)
        self._compiled: dict[Any, launch.Launches] = {}
        self._plans: dict[Any, _Plan] = {}
        # One look for most calls: plans and numbers together.
        self._ready: dict[Any, _Ready] = {}
        self._numbers: dict[Any, tf.Tensor] = {}

    def __repr__(self) -> str:
        params = "".join(f", {name}: {dtype.name}" for name, dtype in self.params.items())
        return f"<metal_kernel {self.name}({', '.join(self.inputs)}{params}) -> {', '.join(self.outputs)}>"

    def __call__(self, *inputs: Any, name: str | None = None, **params: Any) -> Any:
        """Runs the kernel.

        Args:
          *inputs: Tensors, or values that make one; also by their names.
          name: Optional name of the op.
          **params: The kernel's parameters, numbers or scalar tensors.

        Returns:
          The output's tensor; of several outputs a tuple.

        Raises:
          TypeError: An argument is missing, unknown or of a dtype that shaders do not have.
          ValueError: A shape, grid or threadgroup is impossible.
          SyntaxError: There is a mistake in the source.
          tf.errors.UnimplementedError: Inside a function that XLA compiles, or with atomic outputs where ops have to be
            deterministic.
        """
        if not tf.executing_eagerly():
            return self._call_in_graph(inputs, params, name)
        key = self._key(inputs, params)
        ready = self._ready.get(key)
        if ready is None:
            tensors = self._tensors(inputs, params)
            ready = self._prepare(tensors, self._values(params))
            if key is not None:
                _remember(self._ready, key, ready)
            inputs = tuple(tensors)
        compiled, launched, scalars, dtypes = ready
        found = compiled.run_now(launched, inputs, scalars, dtypes, name)
        return found[0] if len(self.outputs) == 1 else tuple(found)

    def _key(self, inputs: tuple[Any, ...], params: dict[str, Any]) -> tuple[Any, ...] | None:
        """The cache key of a call without a graph, if it takes tensors and plain numbers; else None."""
        if len(inputs) != len(self.inputs) or len(params) != len(self.params):
            return None
        key: list[Any] = []
        for x in inputs:
            if not isinstance(x, tf.Tensor):
                return None
            key += (x.dtype, tuple(x.shape.as_list()))
        for name in self.params:
            value = params.get(name)
            kind = type(value)
            if (kind is not float and kind is not int) or value != value:
                return None
            key += (kind, value or repr(value))  # 0.0 and -0.0 are equal
        return tuple(key)

    # Else tf.function would have AutoGraph convert all that a call runs: three quarters of the time that tracing takes.
    @tf.autograph.experimental.do_not_convert
    def _call_in_graph(
        self, inputs: tuple[Any, ...], params: dict[str, Any], name: str | None
    ) -> Any:
        _checks.refuse_xla(self.name)
        tensors = self._tensors(inputs, params)
        values = self._values(params)
        run = self._run if self._vjp is None else self._with_gradient
        found = run(tensors, values, name)
        return found[0] if len(self.outputs) == 1 else tuple(found)

    # ---- arguments

    def _tensors(self, inputs: Sequence[Any], params: dict[str, Any]) -> list[tf.Tensor]:
        if len(inputs) > len(self.inputs):
            raise TypeError(
                f"[{self.name}] expected {len(self.inputs)} inputs ({', '.join(self.inputs)}), got {len(inputs)}."
            )
        for name in self.inputs[len(inputs) :]:
            if name not in params:
                raise TypeError(f"[{self.name}] {name}: expected a tensor, got none.")
            inputs = (*inputs, params.pop(name))
        tensors = []
        for name, value in zip(self.inputs, inputs, strict=True):
            tensor = value
            if not isinstance(value, tf.Tensor):
                default = None if hasattr(value, "dtype") else self._default_dtype(value)
                tensor = _arguments.convert(self.name, name, value, default)
            if tensor.dtype not in msl.TYPES:
                msl.type_of(self.name, name, tensor.dtype)
            tensors.append(tensor)
        return tensors

    @staticmethod
    def _default_dtype(value: Any) -> tf.DType | None:
        # NumPy calls Python's numbers float64, which shaders do not have.
        return tf.float32 if isinstance(value, float) else None

    def _values(self, params: Mapping[str, Any]) -> dict[str, Any]:
        for name in params:
            if name not in self.params:
                known = ", ".join((*self.inputs, *self.params))
                raise TypeError(f"[{self.name}] there is no argument {name!r}; it takes {known}.")
        for name in self.params:
            if name not in params:
                raise TypeError(f"[{self.name}] {name}: expected a number, got none.")
        return {name: params[name] for name in self.params}

    def _scalar(self, name: str, value: Any) -> tf.Tensor:
        """A parameter as the op takes it, in host memory."""
        # Most are plain numbers: whether something is a tensor takes longer to ask than the rest of a call.
        plain = type(value) in (int, float) and tf.executing_eagerly()
        if plain:
            found = self._numbers.get((name, repr(value)))
            if found is not None:
                return found
        dtype = self.params[name]
        if tf.is_tensor(value) or hasattr(value, "assign"):
            tensor = tf.convert_to_tensor(value)
            if tensor.dtype != dtype or tensor.shape.rank not in (0, None):
                raise TypeError(
                    f"[{self.name}] {name}: expected a scalar of {dtype.name}, got {tensor.dtype.name} {tensor.shape}. "
                    f"Cast it: tf.cast({name}, tf.{dtype.name})."
                )
            return tensor
        if not isinstance(value, numbers.Number | np.generic | np.ndarray) or np.shape(value):  # type: ignore[arg-type]
            raise TypeError(f"[{self.name}] {name}: expected a number, got {value!r}.")
        tensor = self._host_constant(name, value, dtype)
        if plain:
            # By its text: 0.0 and -0.0 are equal.
            _remember(self._numbers, (name, repr(value)), tensor)
        return tensor

    def _host_constant(self, name: str, value: Any, dtype: tf.DType) -> tf.Tensor:
        if isinstance(value, numbers.Real | np.generic) and not msl.holds(dtype, value):
            raise ValueError(f"[{self.name}] {name}: {msl.unheld(dtype, value)}.")
        with tf.device(launch.HOST):
            return _arguments.convert(self.name, name, value, dtype)

    # ---- the call

    def _run(
        self, tensors: Sequence[tf.Tensor], values: Mapping[str, Any], name: str | None
    ) -> list[tf.Tensor]:
        if tf.executing_eagerly():
            compiled, launched, constants, dtypes = self._prepare(tensors, values)
            return compiled.run_now(launched, tensors, constants, dtypes, name)
        plan = self._plan(tensors, values)
        scalars = [self._scalar(key, value) for key, value in values.items()]
        outputs = plan.compiled.run(plan.numbers, tensors, scalars, plan.dtypes, name)
        for output, shape in zip(outputs, plan.shapes, strict=True):
            output.set_shape(shape)
        return outputs

    def _prepare(self, tensors: Sequence[tf.Tensor], values: Mapping[str, Any]) -> _Ready:
        """A call outside of graphs."""
        planned = [values[key] for key in self._planned_params]
        if planned and any(tf.is_tensor(value) or hasattr(value, "assign") for value in planned):
            # Tensors compare by element; their value is looked at anew.
            plan = self._plan(tensors, values)
        else:
            key = (*((x.dtype, tuple(x.shape)) for x in tensors), *planned)
            found = self._plans.get(key)
            if found is None:
                found = self._plan(tensors, values)
                _remember(self._plans, key, found)
            plan = found
        return _Ready(
            plan.compiled,
            plan.numbers,
            tuple(self._scalar(key, value) for key, value in values.items()),
            tuple(dtype.as_datatype_enum for dtype in plan.dtypes),
        )

    def _plan(self, tensors: Sequence[tf.Tensor], values: Mapping[str, Any]) -> _Plan:
        seen: dict[str, Any] = dict(zip(self.inputs, map(launch.view, tensors), strict=True))
        for name in self._planned_params:
            value = values[name]
            eager = hasattr(value, "numpy") and tf.executing_eagerly()
            seen[name] = value.numpy().item() if eager else value
        with tf.device(launch.HOST):
            compiled, dtypes = self._compile(seen)
            sizes = dims.Sizes(self.name)
            for input_name, words in self._words.items():
                sizes.check(input_name, words, seen)
            shapes = self._shapes(seen, sizes)
            grid = resolve(self._functions["grid"], seen)
            if grid is None:  # a thread for each element of the first output
                first = shapes[0]
                grid = tf.reduce_prod(first) if tf.is_tensor(first) else _product(first)
            group = resolve(self._functions["threadgroup"], seen)
            head = launch.three(self.name, "grid", grid, 0)
            head += [0, 0, 0] if group is None else launch.three(self.name, "threadgroup", group, 1)
            for name, size in self._threadgroup_sizes.items():
                count = launch.number(
                    self.name, f"threadgroup_memory[{name!r}]", resolve(size, seen), 1
                )
                head.append(count * self._body.threadgroup[name].size)
            packed = launch.pack(head, shapes)
            if sizes.checks:  # before anything runs
                with tf.control_dependencies(sizes.checks):
                    packed = tf.identity(packed)
        return _Plan(
            compiled,
            dtypes,
            packed,
            tuple(launch.static_shape(shape) for shape in shapes),
        )

    def _shapes(self, seen: Mapping[str, Any], sizes: dims.Sizes) -> list[Any]:
        found = resolve(self._functions["shapes"], seen)
        if found is None:
            if not self.inputs:
                raise TypeError(
                    f"[{self.name}] shapes: expected the outputs' shapes, as there is no input to take them of."
                )
            found = [seen[self.inputs[0]].shape] * len(self.outputs)
        elif len(self.outputs) == 1 and not isinstance(found, Mapping):
            found = [found]
        found = self._by_output("shapes", found)
        return [
            launch.sizes(
                self.name,
                f"shapes ({name})",
                sizes.shape(shape, "shapes", seen) if isinstance(shape, dims.Words) else shape,
            )
            for name, shape in zip(self.outputs, found, strict=True)
        ]

    def _by_output(self, argument: str, found: Any) -> list[Any]:
        if isinstance(found, Mapping):
            if set(found) != set(self.outputs):
                raise ValueError(
                    f"[{self.name}] {argument}: expected {', '.join(self.outputs)}, got {', '.join(map(str, found))}."
                )
            return [found[name] for name in self.outputs]
        if not isinstance(found, list | tuple) or len(found) != len(self.outputs):
            raise ValueError(
                f"[{self.name}] {argument}: expected one for each of {', '.join(self.outputs)}, got {found!r}."
            )
        return list(found)

    def _compile(self, seen: Mapping[str, Any]) -> tuple[launch.Launches, tuple[tf.DType, ...]]:
        inputs = tuple(seen[name].dtype for name in self.inputs)
        template = {
            name: _template_value(self.name, name, resolve(value, seen))
            for name, value in self._template.items()
        }
        dtypes = resolve(self._functions["dtypes"], seen)
        if dtypes is None:
            dtypes = [inputs[0] if inputs else tf.float32] * len(self.outputs)
        elif not isinstance(dtypes, list | tuple | Mapping):
            dtypes = [dtypes] * len(self.outputs)
        outputs = tuple(
            msl.type_of(self.name, f"dtypes ({name})", dtype)
            for name, dtype in zip(self.outputs, self._by_output("dtypes", dtypes), strict=True)
        )
        key = (inputs, outputs, tuple(template.items()))
        found = self._compiled.get(key)
        if found is None:
            found = self._compiled[key] = self._compile_anew(inputs, outputs, template)
        return found, outputs

    def _compile_anew(
        self,
        inputs: tuple[tf.DType, ...],
        outputs: tuple[tf.DType, ...],
        template: Mapping[str, Any],
    ) -> launch.Launches:
        for name, dtype in zip(self.outputs, outputs, strict=True):
            if self._body.atomic and dtype not in msl.ATOMICS:
                known = ", ".join(dtype.name for dtype in msl.ATOMICS)
                raise TypeError(
                    f"[{self.name}] atomic_outputs: {name} has dtype {dtype.name}; Metal has atomics of {known}."
                )
            if not msl.holds(dtype, self._body.init):
                raise ValueError(
                    f"[{self.name}] init_value: {msl.unheld(dtype, self._body.init)}, which {name} has."
                )
        text = self._body.text(inputs, outputs, template)
        if len(text.arguments) > ARGUMENTS:
            raise ValueError(
                f"[{self.name}] has {len(text.arguments)} arguments, shapes and sizes included; Metal allows "
                f"{ARGUMENTS}."
            )
        if self._verbose:
            print(f"metal_kernel {self.name}:\n{text.source}")
        texts = {
            f"<source of {self.name}>": self._body.source,
            f"<header of {self.name}>": self._body.header,
        }
        source = text.source.encode()
        compiler.functions(self.name, source, self._fast_math, texts)
        attributes = {
            "source": source,
            "function": self.name,
            "arguments": text.arguments,
            "initialized": self._body.init is not None,
            "atomic": self._body.atomic,
            "fast_math": self._fast_math,
        }
        return launch.Launches(
            self.name, attributes, self._gradient if self._vjp is not None else None
        )

    # ---- derivatives

    def _check_vjp(self, vjp: Any) -> Any:
        if vjp is None:
            return None
        names = (*self.inputs, *self.outputs, *(f"d_{name}" for name in self.outputs), *self.params)
        if isinstance(vjp, MetalKernel):
            for name in (*vjp.inputs, *vjp.params):
                if name not in names:
                    raise ValueError(
                        f"[{self.name}] vjp: {vjp.name} takes {name!r}, which is none of {', '.join(names)}."
                    )
            wanted = {f"d_{name}": name for name in (*self.inputs, *self.params)}
            for name in vjp.outputs:
                if name not in wanted:
                    raise ValueError(
                        f"[{self.name}] vjp: {vjp.name} has the output {name!r}; expected some of {', '.join(wanted)}."
                    )
            return vjp
        if not callable(vjp):
            raise TypeError(
                f"[{self.name}] vjp: expected a function or a metal_kernel, got {vjp!r}."
            )
        return ByName(self.name, "vjp", vjp, names)

    def _with_gradient(
        self,
        tensors: list[tf.Tensor],
        values: Mapping[str, Any],
        name: str | None,
    ) -> list[tf.Tensor]:
        n = len(tensors)
        # Numbers as tensors, too: a parameter may have a gradient.
        scalars = {key: self._scalar(key, value) for key, value in values.items()}
        # A shape may depend on a number, which as a tensor of a graph would be unknown.
        given = {key: values[key] for key in self._planned_params if not tf.is_tensor(values[key])}

        @tf.custom_gradient
        def run(*arguments: tf.Tensor) -> Any:
            params = dict(zip(scalars, arguments[n:], strict=True))
            outputs = self._run(arguments[:n], {**params, **given}, name)

            def gradient(*upstream: tf.Tensor) -> list[tf.Tensor | None]:
                return self._gradient(arguments, outputs, upstream)

            return outputs, gradient

        return run(*tensors, *scalars.values())

    def _gradient(
        self,
        arguments: Sequence[tf.Tensor],
        outputs: Sequence[tf.Tensor],
        upstream: Sequence[tf.Tensor],
    ) -> list[tf.Tensor | None]:
        names = (*self.inputs, *self.params)
        seen = dict(zip(names, arguments, strict=True))
        seen |= dict(zip(self.outputs, outputs, strict=True))
        seen |= {f"d_{key}": value for key, value in zip(self.outputs, upstream, strict=True)}
        if isinstance(self._vjp, MetalKernel):
            kernel = self._vjp
            found = kernel(
                *(seen[key] for key in kernel.inputs), **{key: seen[key] for key in kernel.params}
            )
            found = [found] if len(kernel.outputs) == 1 else found
            found = {key[2:]: value for key, value in zip(kernel.outputs, found, strict=True)}
        else:
            found = self._vjp(seen)
            if not isinstance(found, list | tuple | Mapping):
                found = [found]
            if not isinstance(found, Mapping):
                if len(found) not in (len(self.inputs), len(names)):
                    raise ValueError(
                        f"[{self.name}] vjp: expected the gradients of {', '.join(self.inputs)} (None for one that has "
                        f"none), got {len(found)}."
                    )
                found = dict(zip(names, found, strict=False))
            unknown = [str(key) for key in found if key not in names]
            if unknown:
                raise ValueError(
                    f"[{self.name}] vjp: {', '.join(unknown)} in what it returns; expected some of {', '.join(names)}."
                )
        return [self._check_gradient(key, seen[key], found.get(key)) for key in names]

    def _check_gradient(self, name: str, value: tf.Tensor, gradient: Any) -> tf.Tensor | None:
        if gradient is None:
            return None
        gradient = _arguments.convert(self.name, f"vjp ({name})", gradient)
        if gradient.dtype != value.dtype or not gradient.shape.is_compatible_with(value.shape):
            raise ValueError(
                f"[{self.name}] vjp: the gradient of {name} is {gradient.dtype.name} {gradient.shape}, and {name} is "
                f"{value.dtype.name} {value.shape}."
            )
        return gradient


def _product(dims: Sequence[Any]) -> Any:
    return functools.reduce(lambda a, b: a * b, dims, 1)


def _template_value(label: str, name: str, value: Any) -> Any:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        if not -(2**63) < int(value) < 2**63:
            raise ValueError(
                f"[{label}] template[{name!r}]: expected an integer of 64 bits, got {value}."
            )
        return int(value)
    if tf.is_tensor(value) or isinstance(value, float | np.generic | np.ndarray):
        raise TypeError(
            f"[{label}] template[{name!r}]: expected a dtype, an integer or a bool, which the text is made with, got "
            f"{value!r}. Numbers that change belong to params."
        )
    return msl.type_of(label, f"template[{name!r}]", value)


def metal_kernel(
    name: str,
    inputs: Sequence[str] | Mapping[str, str],
    outputs: Sequence[str],
    source: str,
    *,
    params: Mapping[str, Any] | None = None,
    shapes: Any = None,
    dtypes: Any = None,
    header: str = "",
    template: Mapping[str, Any] | None = None,
    grid: Any = None,
    threadgroup: Any = None,
    threadgroup_memory: Mapping[str, tuple[Any, Any]] | None = None,
    init_value: float | int | bool | None = None,
    atomic_outputs: bool = False,
    math_mode: str = "safe",
    vjp: Callable[..., Any] | MetalKernel | None = None,
    verbose: bool = False,
) -> MetalKernel:
    """Makes a TensorFlow op of the body of a Metal kernel.

    The body sees each input as `device const T*` and each output as `device T*`, elements in row-major order, and each
    parameter as `constant T&`. Where it names them it also gets `x_shape` (ints), `x_strides` (longs, in elements),
    `x_ndim` and `x_size` of an input or output x, the thread's attributes, such as `thread_position_in_grid` (uint3)
    and `thread_index_in_simdgroup` (uint), and `i`, which is `thread_position_in_grid.x`.

    Functions given for shapes, dtypes, grid, threadgroup, threadgroup_memory and template values name as parameters the
    inputs and params that they look at. An input has `.shape`, `.dtype`, `.ndim` and `.size`; under tf.function a size
    that is not known yet is a scalar tensor. They are called once for inputs of the same dtypes and shapes.

    Args:
      name: The kernel's name in messages and graphs.
      inputs: Names of the inputs; or a dict of their shapes, which are checked before anything runs: "any", "like x" or
        sizes and their names, "[rows, 3]". A name has one size throughout.
      outputs: Names of the outputs.
      source: The body, in the Metal Shading Language. It writes all elements of the outputs.
      params: Names and types of numbers that are given by keyword at each call: {"a": "float"} or {"a": tf.float32}.
      shapes: The output's shape, of several outputs a list or a dict; in the words of inputs, or a function. Without
        it, the first input's.
      dtypes: The outputs' dtypes, one for all, a list or a dict; or a function. Without it, the first input's.
      header: The text before the kernel: helper functions, structs, constants.
      template: Names for dtypes, integers and bools that the text is made with: {"T": tf.float16, "N": 4}; or
        functions.
      grid: Threads, one to three numbers, or a function. Without it, one for each element of the first output.
      threadgroup: Threads of a threadgroup, as the grid. Without it, as many as the kernel allows.
      threadgroup_memory: Arrays that the threads of a threadgroup share, by name: {"tile": ("float", 256)}, where the
        number may be a function.
      init_value: A number that fills the outputs before the kernel runs.
      atomic_outputs: Makes the outputs `device atomic<T>*`, of int32, uint32 or float32.
      math_mode: "safe", or "fast": the compiler may reorder and approximate.
      vjp: The gradient: a function of some of the inputs, outputs, params and `d_<output>`, by name, that returns the
        gradients of the inputs, a tuple (None for those without) or a dict; or a kernel whose inputs are named so
        and whose outputs are `d_<input>`.
      verbose: Print the compiled text.

    Returns:
      A function of the inputs, and of the params by keyword, that returns the output, or a tuple of several.

    Raises:
      TypeError: An argument is of a wrong type.
      ValueError: A name is taken, given twice or none that the language allows, a value is out of range, or the source
        never names an output that has no `init_value`.

    Example:
      >>> axpy = metal_ops.metal_kernel(
      ...     "axpy", inputs=["x", "y"], outputs=["z"], source="z[i] = a * x[i] + y[i];", params={"a": "float"})
      >>> axpy(tf.constant([1.0, 2.0]), tf.constant([10.0, 20.0]), a=3.0).numpy()
      array([13., 26.], dtype=float32)
    """
    label = msl.check_name("metal_kernel", "name", name)
    words = {}
    if isinstance(inputs, Mapping):
        words = {key: _words(label, f"inputs[{key!r}]", text) for key, text in inputs.items()}
        inputs = list(inputs)
    inputs = _names(label, "inputs", inputs)
    for key, shape in words.items():
        if shape.like and (shape.like not in inputs or shape.like == key):
            raise ValueError(f"[{label}] inputs[{key!r}]: there is no other input {shape.like!r}.")
    outputs = _names(label, "outputs", outputs)
    if not outputs:
        raise ValueError(f"[{label}] outputs: expected one or more names, got none.")
    params = _mapping(label, "params", params)
    template = _mapping(label, "template", template)
    memory = _mapping(label, "threadgroup_memory", threadgroup_memory)
    taken: set[str] = {label}
    for argument, names in (
        *(("inputs", inputs), ("outputs", outputs), ("params", params)),
        *(("template", template), ("threadgroup_memory", memory)),
    ):
        for given in names:
            if given in taken:
                raise ValueError(f"[{label}] {argument}: the name {given!r} is taken already.")
            taken.add(given)
    if "name" in params or "name" in inputs:
        raise ValueError(f"[{label}] 'name' is the op's own name in a call; choose another.")
    for argument, text in (("source", source), ("header", header)):
        if not isinstance(text, str):
            raise TypeError(f"[{label}] {argument}: expected text, got {type(text).__name__}.")
        if "\0" in text:
            raise ValueError(f"[{label}] {argument}: there is a zero byte in it.")
    if math_mode not in ("safe", "fast"):
        raise ValueError(f"[{label}] math_mode: expected 'safe' or 'fast', got {math_mode!r}.")
    if init_value is not None and not isinstance(init_value, numbers.Real | np.bool_):
        raise TypeError(f"[{label}] init_value: expected a number, got {init_value!r}.")
    said = msl.words(source) | msl.words(header)
    for given in outputs:
        if given not in said and init_value is None:
            raise ValueError(
                f"[{label}] outputs: the source never names {given!r}, so its elements would be whatever lay in "
                "memory. Write to it, leave it out, or give init_value."
            )
    types, counts = {}, {}
    for given, spec in memory.items():
        if not isinstance(spec, list | tuple) or len(spec) != 2:
            raise TypeError(
                f"[{label}] threadgroup_memory[{given!r}]: expected a type and how many, such as ('float', 256), got "
                f"{spec!r}."
            )
        types[given] = msl.type_of(label, f"threadgroup_memory[{given!r}]", spec[0])
        counts[given] = spec[1]
    body = msl.Body(
        name=label,
        inputs=inputs,
        outputs=outputs,
        params={
            given: msl.type_of(label, f"params[{given!r}]", dtype)
            for given, dtype in params.items()
        },
        source=source,
        header=header,
        threadgroup=types,
        atomic=_arguments.flag(label, "atomic_outputs", atomic_outputs),
        init=init_value,
    )
    return MetalKernel(
        body,
        words,
        shapes=_shapes_in_words(label, shapes, inputs),
        dtypes=dtypes,
        template=template,
        grid=grid,
        threadgroup=threadgroup,
        threadgroup_sizes=counts,
        vjp=vjp,
        fast_math=math_mode == "fast",
        verbose=_arguments.flag(label, "verbose", verbose),
    )


def _words(label: str, argument: str, text: Any) -> dims.Words:
    if not isinstance(text, str):
        raise TypeError(f"[{label}] {argument}: expected a shape in words, got {text!r}.")
    return dims.read(label, argument, text)


def _shapes_in_words(label: str, shapes: Any, inputs: Sequence[str]) -> Any:
    """Texts among the outputs' shapes are read; all else stays."""
    if isinstance(shapes, Mapping):
        return {key: _shapes_in_words(label, shape, inputs) for key, shape in shapes.items()}
    if isinstance(shapes, list | tuple):
        return [_shapes_in_words(label, shape, inputs) for shape in shapes]
    if not isinstance(shapes, str):
        return shapes
    words = dims.read(label, "shapes", shapes)
    if words.text == "any" or (words.like and words.like not in inputs):
        raise ValueError(f"[{label}] shapes: {shapes!r} is no shape of an output.")
    return words


def _names(label: str, argument: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f"[{label}] {argument}: expected a list of names, got {names!r}.")
    return tuple(msl.check_name(label, argument, name) for name in names)


def _mapping(label: str, argument: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"[{label}] {argument}: expected a dict, got {value!r}.")
    return {msl.check_name(label, argument, name): item for name, item in value.items()}
