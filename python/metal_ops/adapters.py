"""Low-rank adapters beside the layers of a Keras model, which stays as it is: several on one, each trained for a task.

Hu et al. 2021, "LoRA: Low-rank adaptation of large language models", [arXiv:2106.09685](https://arxiv.org/abs/2106.09685):
a layer that multiplies with W multiplies with W + (alpha / rank) A B, section 4.1, and A and B alone are trained. B
begins at zero. The product with A comes first, so that W + A B is never made, and W may be codes.

Dense, EinsumDense (and with it MultiHeadAttention's projections), Conv1D, Conv2D and Conv3D without groups, Embedding,
QuantizedDense, QuantizedConv2D and QuantizedEmbedding can have adapters.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from metal_ops import _keras
from metal_ops.layers import QuantizedConv2D, QuantizedDense, QuantizedEmbedding
from metal_ops.ops import _arguments

_keras.require_tensorflow_backend()

__all__ = ["add", "load", "merge", "names", "save", "unmerge", "use"]

_FORMAT = "metal_ops adapter 1"
_CONVOLUTIONS = (keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)


class _Form(NamedTuple):
    """How a layer of one kind has its adapter."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    spread: float  # of A at first
    # A function of the layer's inputs, A, B, and the dropout of A's inputs.
    product: Callable[
        [tf.Tensor, tf.Tensor, tf.Tensor, Callable[[tf.Tensor], tf.Tensor]], tf.Tensor
    ]
    kernel: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]  # A B in the shape of the layer's weights


def _form(layer: Any, rank: int) -> _Form | None:
    """None for layers that can have no adapter. A subclass with a call of its own may compute anything."""
    call = type(layer).call
    other = getattr(layer, "quantization_mode", None) or getattr(layer, "lora_enabled", False)
    # Keras' own quantization has another call, and its adapters another kernel.
    if not layer.built or other:
        return None
    if call in (keras.layers.Dense.call, QuantizedDense.call):
        inputs = layer.input_spec.axes[-1]
        return _Form(
            (inputs, rank),
            (rank, layer.units),
            inputs**-0.5,
            lambda x, a, b, drop: tf.tensordot(tf.tensordot(drop(x), a, 1), b, 1),
            tf.matmul,
        )
    if call in (keras.layers.Embedding.call, QuantizedEmbedding.call):
        return _Form(
            (layer.input_dim, rank),
            (rank, layer.output_dim),
            rank**-0.5,
            lambda x, a, b, drop: _each_row(
                x, lambda x: tf.tensordot(drop(tf.gather(a, _indices(x))), b, 1)
            ),
            tf.matmul,
        )
    if any(isinstance(layer, kind) and call is kind.call for kind in _CONVOLUTIONS):
        return _convolution(layer, rank) if layer.groups == 1 else None
    if call is keras.layers.EinsumDense.call:
        return _einsum(layer, rank)
    return None


def _each_row(x: tf.Tensor, product: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    return (
        x.with_flat_values(product(x.flat_values)) if isinstance(x, tf.RaggedTensor) else product(x)
    )


def _indices(x: tf.Tensor) -> tf.Tensor:
    return x if x.dtype in (tf.int32, tf.int64) else tf.cast(x, tf.int32)


def _convolution(layer: Any, rank: int) -> _Form:
    """A is a convolution like the layer's, B one of single points."""
    axes = len(layer.kernel_size)
    axis = -1 if layer.data_format == "channels_last" else 1
    channels = layer.input_spec.axes[axis]

    def product(
        x: tf.Tensor, a: tf.Tensor, b: tf.Tensor, drop: Callable[[tf.Tensor], tf.Tensor]
    ) -> tf.Tensor:
        x, padding = drop(x), layer.padding
        if padding == "causal":  # of Conv1D alone
            before = [layer.dilation_rate[0] * (layer.kernel_size[0] - 1), 0]
            x = keras.ops.pad(x, [[0, 0], before, [0, 0]] if axis < 0 else [[0, 0], [0, 0], before])
            padding = "valid"
        narrow = keras.ops.conv(
            x,
            a,
            strides=list(layer.strides),
            padding=padding,
            dilation_rate=layer.dilation_rate,
            data_format=layer.data_format,
        )
        return keras.ops.conv(narrow, b[(tf.newaxis,) * axes], data_format=layer.data_format)

    return _Form(
        (*layer.kernel_size, channels, rank),
        (rank, layer.filters),
        (channels * math.prod(layer.kernel_size)) ** -0.5,
        product,
        lambda a, b: tf.tensordot(a, b, 1),
    )


def _einsum(layer: Any, rank: int) -> _Form | None:
    """A takes the axes that the equation sums over, B gives those that it adds."""
    equation = layer.equation.replace(" ", "")
    x, kernel, out = re.split(",|->", equation)
    size = dict(zip(kernel, layer.kernel.shape, strict=True))
    summed = "".join(label for label in kernel if label in x and label not in out)
    added = "".join(label for label in kernel if label in out and label not in x)
    if len(summed) + len(added) != len(kernel):
        return None  # another matrix for each index of an axis
    r = next(label for label in "rstuvwxyzabcdefghijklmnopq" if label not in equation)
    left = "".join(label for label in re.findall(r"\.\.\.|\w", x) if label not in summed)
    return _Form(
        (*(size[label] for label in summed), rank),
        (rank, *(size[label] for label in added)),
        math.prod(size[label] for label in summed) ** -0.5,
        lambda x_, a, b, drop: tf.einsum(
            f"{left}{r},{r}{added}->{out}",
            tf.einsum(f"{x},{summed}{r}->{left}{r}", drop(x_), a),
            b,
        ),
        lambda a, b: tf.einsum(f"{summed}{r},{r}{added}->{kernel}", a, b),
    )


class _Adapter(keras.layers.Layer):
    """A and B beside one layer. Models are saved without them: see `save`."""

    def __init__(self, layer: Any, rank: int, alpha: float, dropout: float, name: str) -> None:
        super().__init__(name=name, dtype=layer.dtype_policy, autocast=False)
        form = _form(layer, rank)
        assert form is not None
        self.rank, self.alpha, self.dropout = rank, alpha, dropout
        self._product, self._kernel = form.product, form.kernel
        self._generator = keras.random.SeedGenerator() if dropout else None
        spread = keras.initializers.RandomUniform(-form.spread, form.spread)
        with contextlib.ExitStack() as scopes:
            for scope in _keras.path(layer).split("/"):
                scopes.enter_context(keras.name_scope(scope))
            for part, shape, initial in (("a", form.a, spread), ("b", form.b, "zeros")):
                variable = self.add_weight(
                    name=part, shape=shape, initializer=initial, dtype="float32", autocast=False
                )
                setattr(self, part, variable)
        self.built = True

    def learn(self, whether: bool) -> None:
        self.a.trainable = self.b.trainable = whether

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        def drop(x: tf.Tensor) -> tf.Tensor:
            x = tf.cast(x, self.compute_dtype)
            if not training or not self.dropout:
                return x
            return keras.random.dropout(x, self.dropout, seed=self._generator)

        a, b = (tf.cast(part.value, self.compute_dtype) for part in (self.a, self.b))
        return self.alpha / self.rank * self._product(inputs, a, b, drop)

    def delta(self) -> tf.Tensor:
        """The addend of the layer's weights, float32."""
        return self.alpha / self.rank * self._kernel(self.a.value, self.b.value)

    def save_own_variables(self, store: Any) -> None:
        pass

    def load_own_variables(self, store: Any) -> None:
        pass


class _Beside:
    """The adapters of one layer, and which of them its calls add."""

    def __init__(self, layer: Any) -> None:
        self.layer = layer
        self.adapters: dict[str, _Adapter] = {}
        self.used: str | tuple[str | None, ...] | None = None
        self.merged: str | None = None
        self.original: Any = None  # the weights before they were merged
        self.call = layer.call

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = self.used if isinstance(self.used, tuple) else (self.used,)
        adapters = [self.adapters[name] for name in dict.fromkeys(chosen) if name in self.adapters]
        if not adapters:
            return self.call(inputs, *args, **kwargs)
        # The layer as it is now without the ops after the sum. Grappler takes the sum of a MatMul with a bias and
        # another tensor before a Relu for one op that it has no name for.
        plain = object.__new__(type(self.layer))
        vars(plain).update(vars(self.layer))
        vars(plain).update(activation=None, use_bias=False, bias=None)
        outputs = type(self.layer).call(plain, inputs, *args, **kwargs)
        for adapter in adapters:
            added = tf.cast(adapter(inputs), outputs.dtype)
            if isinstance(self.used, tuple):
                added = _of_rows(self._rows(adapter.name, outputs), added)
            outputs += added
        bias = getattr(self.layer, "bias", None)
        if bias is not None:
            if getattr(self.layer, "data_format", None) == "channels_first":
                bias = keras.ops.reshape(bias, [-1] + [1] * len(self.layer.kernel_size))
            outputs = keras.ops.add(outputs, bias)
        activation = getattr(self.layer, "activation", None)
        return outputs if activation is None else activation(outputs)

    def _rows(self, name: str, outputs: tf.Tensor) -> tf.Tensor:
        """The rows of the batch that have that adapter, [batch]."""
        assert isinstance(self.used, tuple)
        n = len(self.used)
        words = (
            f"[adapters.use] names: one for each of {n} rows, but {self.layer.name} is called with"
        )
        if outputs.shape[0] not in (None, n):
            raise ValueError(f"{words} {outputs.shape[0]}.")
        batch = outputs.nrows() if isinstance(outputs, tf.RaggedTensor) else tf.shape(outputs)[0]
        same = tf.debugging.assert_equal(tf.cast(batch, tf.int32), n, f"{words} another number.")
        with tf.control_dependencies([] if same is None else [same]):
            return tf.constant([one == name for one in self.used])


def _of_rows(rows: tf.Tensor, added: tf.Tensor) -> tf.Tensor:
    """`added` in some rows [batch] of it, and 0 in the others, whatever is there."""
    if isinstance(added, tf.RaggedTensor):
        each = tf.gather(rows, added.value_rowids())
        return added.with_values(_of_rows(each, added.values))
    rows = tf.reshape(rows, [-1] + [1] * (len(added.shape) - 1))
    return tf.where(rows, added, tf.zeros([], added.dtype))


def add(
    model: keras.Model,
    rank: int = 8,
    alpha: float = 16.0,
    layers: Any = None,
    name: str = "default",
    dropout: float = 0.0,
) -> list[str]:
    """Puts an adapter beside layers of a model, and uses it.

    The base is frozen: the trainable variables of the model are those of the adapter in use, and layers that have none,
    as batch normalization, run as in inference. Outputs stay the same until it is trained. Compile the model after
    that: an optimizer is made for certain variables. No weights are copied.

    Adapters are float32 and computed in the layer's dtype. They are among the model's weights, but `model.save` and
    `save_weights` write the base alone; where an adapter was trained by `fit`, load that with `compile=False`, as
    the optimizer's state is the adapter's.

    Args:
      model: A built Keras model of any kind, or a layer.
      rank: Columns of A, rows of B.
      alpha: The product A B is taken times alpha / rank.
      layers: The layers: a name, of one or of one that it lies in, or a regular expression of whole parts of its path,
        which is the names of both joined by "/"; a class, a function of the layer, or a list of such; None: all that
        can have one.
      name: The adapter's: letters, digits, "_", "-" and ".".
      dropout: The part of A's inputs that is dropped in training, in [0, 1).

    Returns:
      The paths of the layers that have it.

    Raises:
      TypeError: An argument is of another kind.
      ValueError: A number is out of range, the name is taken, the model is not built or merged, no layer fits, or a
        name is no layer's.

    Example:
      >>> model = keras.Sequential([keras.Input([4]), keras.layers.Dense(8, name="first"), keras.layers.Dense(2)])
      >>> len(metal_ops.adapters.add(model, rank=2, layers="first"))
      1
      >>> [tuple(v.shape) for v in model.trainable_variables]
      [(4, 2), (2, 8)]
    """
    op = "adapters.add"
    _check(op, model)
    rank, alpha = _arguments.integer(op, "rank", rank), _arguments.number(op, "alpha", alpha)
    if not math.isfinite(alpha):
        raise ValueError(f"[{op}] alpha: expected a finite number, got {alpha}.")
    dropout = _arguments.number(op, "dropout", dropout)
    if rank < 1:
        raise ValueError(f"[{op}] rank: expected 1 or more, got {rank}.")
    if not 0 <= dropout < 1:
        raise ValueError(f"[{op}] dropout: expected a number in [0, 1), got {dropout}.")
    possible = _possible(model)
    called = _keras.Names(model)
    fits = _keras.matching(op, "layers", layers, called)
    _keras.check_found(op, "layers", layers, model._flatten_layers(), called)
    chosen = [layer for layer in possible if fits(layer)]
    if not chosen:
        paths = ", ".join(called.of(layer) for layer in possible) or "none of this model"
        raise ValueError(f"[{op}] layers: none fits {layers!r}. Those that can have one: {paths}.")
    _attach(op, model, chosen, rank, alpha, dropout, name)
    return [called.of(layer) for layer in chosen]


def names(model: keras.Model) -> list[str]:
    """The adapters of a model, in the order in which they came.

    Args:
      model: A Keras model.

    Returns:
      Their names.

    Raises:
      TypeError: It is no Keras model or layer.

    Example:
      >>> metal_ops.adapters.names(keras.Sequential([keras.Input([4]), keras.layers.Dense(8)]))
      []
    """
    _check("adapters.names", model)
    return list(dict.fromkeys(name for one in _all(model) for name in one.adapters))


def use(model: keras.Model, names: str | Sequence[str | None] | None) -> None:
    """Says which adapter the calls from now on add, or that they add none.

    The variables of those in use are trainable, others are not. A list has the adapter of each row of the batch, so
    that one call serves several tasks: layers compute the base once for all rows, and each adapter that is named once,
    for all rows as well. Functions of the model that were traced (`fit`, `predict`) are traced again. A `tf.function`
    of your own keeps the adapters it was traced with.

    Args:
      model: The model that is called; one that was trained by `fit` has to be compiled again.
      names: A name, None for the base, or one of either for each row of the batch.

    Raises:
      TypeError: It is no model, or those are no names.
      ValueError: There is no such adapter, or one is merged.

    Example:
      >>> model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
      >>> _ = [metal_ops.adapters.add(model, rank=1, name=name) for name in ("french", "german")]
      >>> metal_ops.adapters.use(model, ["german", None, "french"])
      >>> model(tf.ones([3, 4])).shape
      TensorShape([3, 2])
    """
    op = "adapters.use"
    _check(op, model)
    if names is not None and not isinstance(names, str):
        try:
            names = tuple(names)
        except TypeError:
            raise TypeError(
                f"[{op}] names: expected a name, None or a list of such, got {type(names).__name__}."
            ) from None
    every = [names] if isinstance(names, str) else list(names or ())
    for name in every:
        if name is not None:
            _holding(op, model, name)
    _refuse_merged(op, model)
    for one in _all(model):
        one.used = names
        for name, adapter in one.adapters.items():
            adapter.learn(name in every)
    _forget_traces(model)


def merge(model: keras.Model, name: str = "default") -> None:
    """Adds an adapter to the weights of the layers, which then take no more time than without.

    The weights as they were are kept in the host's memory for `unmerge`. While one is merged no other is used, and
    `model.save` writes the model with it.

    Args:
      model: The model.
      name: The adapter.

    Raises:
      TypeError: It is no Keras model or layer.
      ValueError: There is no such adapter, one is merged already, or a layer's weights are codes: rounding the sum
        again would lose the adapter's training.

    Example:
      >>> model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
      >>> _ = metal_ops.adapters.add(model)
      >>> metal_ops.adapters.merge(model)
      >>> metal_ops.adapters.unmerge(model)
    """
    op = "adapters.merge"
    _check(op, model)
    holding = _holding(op, model, name)
    _refuse_merged(op, model)
    for one in holding:
        if isinstance(one.layer, QuantizedDense | QuantizedConv2D | QuantizedEmbedding):
            raise ValueError(
                f"[{op}] model: the weights of {_keras.path(one.layer)} are codes: nothing can be added without "
                "rounding again. Use the adapter beside them, or merge it into the float model and quantize that."
            )
    for one in holding:
        weights = _weights(one.layer)
        one.original, one.merged = weights.numpy(), name
        weights.assign(weights.value + tf.cast(one.adapters[name].delta(), weights.dtype))
    for one in _all(model):
        one.used = None
        for adapter in one.adapters.values():
            adapter.learn(False)
    _forget_traces(model)


def unmerge(model: keras.Model) -> None:
    """Gives layers the weights back that they had before `merge`, bit for bit, and uses the adapter beside them.

    Args:
      model: The model.

    Raises:
      TypeError: It is no Keras model or layer.
      ValueError: None is merged.

    Example:
      >>> model = keras.Sequential([keras.Input([4]), keras.layers.Dense(2)])
      >>> _, kernel = metal_ops.adapters.add(model), model.layers[0].kernel.numpy()
      >>> metal_ops.adapters.merge(model)
      >>> metal_ops.adapters.unmerge(model)
      >>> np.array_equal(model.layers[0].kernel, kernel)
      True
    """
    op = "adapters.unmerge"
    _check(op, model)
    merged = [one for one in _all(model) if one.merged is not None]
    if not merged:
        raise ValueError(f"[{op}] model: expected one with a merged adapter, got one without.")
    name = merged[0].merged
    for one in merged:
        _weights(one.layer).assign(one.original)
        one.merged = one.original = None
    use(model, name)


def save(model: keras.Model, path: str | os.PathLike[str], name: str = "default") -> None:
    """Writes one adapter to a file, without the model: the whole of it or nothing.

    Args:
      model: The model.
      path: The file; one that is there is replaced.
      name: The adapter.

    Raises:
      TypeError: It is no Keras model or layer.
      ValueError: There is no such adapter.
      OSError: The file cannot be written.

    Example:
      >>> import tempfile, pathlib
      >>> model, other = (keras.Sequential([keras.Input([4]), keras.layers.Dense(2)]) for _ in range(2))
      >>> _, path = metal_ops.adapters.add(model), pathlib.Path(tempfile.mkdtemp()) / "small.adapter"
      >>> metal_ops.adapters.save(model, path)
      >>> _ = metal_ops.adapters.load(other, path)
      >>> metal_ops.adapters.names(other)
      ['default']
    """
    from metal_ops.programs.files import write_npz

    op = "adapters.save"
    _check(op, model)
    _holding(op, model, name)
    arrays: dict[str, np.ndarray] = {}
    paths: dict[str, str] = {}
    for position, layer in enumerate(_possible(model)):
        adapter = _beside(layer).adapters.get(name) if _beside(layer) else None
        if adapter is not None:
            arrays |= {f"{position}/a": adapter.a.numpy(), f"{position}/b": adapter.b.numpy()}
            paths[str(position)] = _keras.path(layer)
            about = {"rank": adapter.rank, "alpha": adapter.alpha, "dropout": adapter.dropout}
    about = {"format": _FORMAT, "name": name, **about, "layers": paths}
    path = Path(path)
    # Beside it, so that it can take its place at once.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write_npz(temporary, {"about": np.array(json.dumps(about)), **arrays})
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()


def load(model: keras.Model, path: str | os.PathLike[str], name: str | None = None) -> list[str]:
    """Puts an adapter that `save` wrote beside the layers of a model, and uses it.

    Layers are found by their place among those of the model that can have adapters, so that their names may differ; the
    shapes have to fit, or nothing is changed. Float and quantized layers have the same adapters.

    Args:
      model: A built model of the architecture that the adapter is of.
      path: The file.
      name: The adapter's name here; None for the one that it was saved by.

    Returns:
      The paths of the layers that have it.

    Raises:
      TypeError: It is no Keras model or layer.
      ValueError: The file is no adapter or not whole, a layer does not fit, or the name is taken.
      OSError: The file cannot be read.

    Example:
      >>> import tempfile, pathlib
      >>> model, other = (keras.Sequential([keras.Input([4]), keras.layers.Dense(2)]) for _ in range(2))
      >>> _, path = metal_ops.adapters.add(model), pathlib.Path(tempfile.mkdtemp()) / "small.adapter"
      >>> metal_ops.adapters.save(model, path)
      >>> _ = metal_ops.adapters.load(other, path)
      >>> metal_ops.adapters.names(other)
      ['default']
    """
    op = "adapters.load"
    _check(op, model)
    wrong = f"[{op}] path: expected a file that adapters.save wrote, got {os.fspath(path)}"
    try:
        with open(path, "rb") as opened, np.load(opened, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            if about["format"] != _FORMAT:
                raise ValueError(about["format"])
            rank, alpha, dropout = int(about["rank"]), float(about["alpha"]), about["dropout"]
            saved = {
                int(position): (file[f"{position}/a"], file[f"{position}/b"], layer)
                for position, layer in about["layers"].items()
            }
            name = str(about["name"]) if name is None else name
    except (ValueError, TypeError, KeyError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{wrong} ({error}).") from error
    possible = _possible(model)
    for position, (a, b, path_then) in saved.items():
        layer = possible[position] if position < len(possible) else None
        form = None if layer is None else _form(layer, rank)
        here = (
            "no layer"
            if layer is None or form is None
            else f"{_keras.path(layer)} for {form.a}, {form.b}"
        )
        if form is None or (a.shape, b.shape) != (form.a, form.b):
            raise ValueError(
                f"[{op}] model: expected the architecture of the adapter, which has {path_then} with {a.shape}, "
                f"{b.shape} in place {position}, got {here}."
            )
    called = _keras.Names(model)
    chosen = [possible[position] for position in saved]
    _attach(op, model, chosen, rank, alpha, float(dropout), name)
    for layer, (a, b, _) in zip(chosen, saved.values(), strict=True):
        adapter = _beside(layer).adapters[name]
        adapter.a.assign(a)
        adapter.b.assign(b)
    return [called.of(layer) for layer in chosen]


def _attach(
    op: str, model: Any, chosen: list[Any], rank: int, alpha: float, dropout: float, name: str
) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
        raise ValueError(f"[{op}] name: expected letters, digits, '_', '-' and '.', got {name!r}.")
    if name in names(model):
        raise ValueError(f"[{op}] name: the model has an adapter {name!r} already.")
    _refuse_merged(op, model)
    for layer in chosen:
        if _beside(layer) is None:
            layer._metal_ops_adapters = _Beside(layer)
            layer.call = layer._metal_ops_adapters.__call__
        adapter = _Adapter(layer, rank, alpha, dropout, name)
        _beside(layer).adapters[name] = adapter
        # Keras tracks the variables of attributes, and refuses new ones of layers that are built.
        layer._tracker.unlock()
        setattr(layer, f"_metal_ops_adapter_{name}", adapter)
        layer._tracker.lock()
    _freeze(model)
    use(model, name)


def _freeze(model: Any) -> None:
    """Nothing is trainable except the variables that `use` makes so."""
    # A layer that is not has no trainable variables, even if its sublayers have.
    model.trainable = True
    for layer in model._flatten_layers():
        if not any(_beside(inner) for inner in layer._flatten_layers()):
            layer.trainable = False
    for variable in model.weights:
        variable.trainable = False


def _beside(layer: Any) -> Any:
    return getattr(layer, "_metal_ops_adapters", None)


def _all(model: Any) -> list[_Beside]:
    return [_beside(layer) for layer in model._flatten_layers() if _beside(layer)]


def _possible(model: Any) -> list[Any]:
    """Those of a model's layers that can have an adapter, in their order, each once."""
    return [layer for layer in model._flatten_layers() if _form(layer, 1) is not None]


def _holding(op: str, model: Any, name: Any) -> list[_Beside]:
    """The layers that have that adapter."""
    if not isinstance(name, str):
        raise TypeError(f"[{op}] name: expected that of an adapter, got {type(name).__name__}.")
    found = [one for one in _all(model) if name in one.adapters]
    if not found:
        there = ", ".join(names(model)) or "none"
        raise ValueError(f"[{op}] name: the model has no adapter {name!r}. It has: {there}.")
    return found


def _refuse_merged(op: str, model: Any) -> None:
    merged = {one.merged for one in _all(model)} - {None}
    if merged:
        raise ValueError(
            f"[{op}] model: adapter {merged.pop()!r} is merged. Call metal_ops.adapters.unmerge(model) first."
        )


def _weights(layer: Any) -> Any:
    return layer.embeddings if isinstance(layer, keras.layers.Embedding) else layer.kernel


def _check(op: str, model: Any) -> None:
    if not isinstance(model, keras.layers.Layer):
        raise TypeError(
            f"[{op}] model: expected a Keras model or layer, got {type(model).__name__}."
        )
    if not model.built:
        raise ValueError(
            f"[{op}] model: expected one that is built, got {model.name}. Call it once."
        )


def _forget_traces(model: Any) -> None:
    """Functions that Keras has traced have the old adapters inside."""
    for function in ("train_function", "test_function", "predict_function"):
        if getattr(model, function, None) is not None:
            setattr(model, function, None)
