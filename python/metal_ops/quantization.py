"""Keras models with weights of 4 or 8 bits, and how far off their layers are."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras, adapters
from metal_ops.layers import QuantizedConv2D, QuantizedDense, QuantizedEmbedding
from metal_ops.layers._quantized import Quantized
from metal_ops.ops.quantized_matmul import Blocks, Format, QuantizedWeights

__all__ = ["LayerError", "QuantizationReport", "QuantizationSpec"]
__all__ += ["quantization_report", "quantize_model"]
__theme__ = "Quantization"

_KINDS = (QuantizedDense, QuantizedConv2D, QuantizedEmbedding)
# How much of a block's extent is cut off at an end. Beyond that nothing was gained on trained weights.
_CUTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
_MOST_PATCHES = 1 << 24  # numbers at a time


@dataclasses.dataclass(frozen=True)
class QuantizationSpec:
    """Which layers `quantize_model` gives weights of how many bits.

    A pattern is a regular expression that is searched in a layer's path, a class of Keras', a function of the layer, or
    a list of such.

    Attributes:
      bits: Of a code: 4 or 8.
      block: Neighbouring inputs of an output that share a scale, a multiple of 32; None: all of them.
      symmetric: Whether there are no minima.
      per_tensor: Whether all outputs share scales.
      scales: Their dtype: float16 or float32. None: float16 for 4 bits, float32 for 8.
      layers: The pattern of those that are quantized; None: all that can be.
      skip: The pattern of those of them that stay as they are; None: none.
      overrides: What differs for the layers of a pattern, such as {"logits": {"bits": 8}}; of several that fit a
        layer the last one counts.

    Raises:
      TypeError: A pattern is none.
      ValueError: bits or block is none that there is, or overrides has another argument.

    Example:
      >>> metal_ops.QuantizationSpec(bits=4, block=64, skip="logits").bits
      4
    """

    bits: int = 4
    block: int | None = 32
    symmetric: bool = False
    per_tensor: bool = False
    scales: Any = None
    layers: Any = None
    skip: Any = None
    overrides: Mapping[Any, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        op = "QuantizationSpec"
        self._format(op, {})
        for argument in ("layers", "skip"):
            _keras.matching(op, argument, getattr(self, argument))
        for pattern, differing in self.overrides.items():
            _keras.matching(op, "overrides", pattern)
            other = set(differing) - set(Format._fields)
            if other:
                raise ValueError(
                    f"[{op}] overrides: expected {', '.join(Format._fields)}, got {min(other)!r}."
                )
            self._format(op, differing)

    def _format(self, op: str, differing: Mapping[str, Any]) -> Format:
        same = {field: getattr(self, field) for field in Format._fields}
        return Format.checked(op, **(same | dict(differing)))

    def _chosen(self, op: str, possible: list[Any]) -> dict[int, Format]:
        """How the layers, by their id, are quantized."""
        fits = _keras.matching(op, "spec.layers", self.layers)
        stays = _keras.matching(op, "spec.skip", self.skip)
        differing = [
            (_keras.matching(op, "spec.overrides", pattern), dict(values))
            for pattern, values in self.overrides.items()
        ]
        chosen = {}
        for layer in possible:
            if fits(layer) and not (self.skip is not None and stays(layer)):
                of_it: dict[str, Any] = {}
                for fits_it, values in differing:
                    of_it |= values if fits_it(layer) else {}
                chosen[id(layer)] = self._format(op, of_it)
        return chosen


def quantize_model(model: keras.Model, spec: Any = None, calibrate: Any = None) -> keras.Model:
    """A model like the given one whose Dense, Conv2D and Embedding layers have weights of 4 or 8 bits.

    The given model stays as it is, and everything that is not quantized has its weights. Sequential and functional
    models, models in models and layers in layers are made again by Keras' configs, and so are subclassed
    models whose layers are attributes, or in lists, tuples or dicts that are. The floats that were quantized are
    not kept. A compiled model is compiled again; only what is not codes is trained.

    With `calibrate` steps need not reach from the least to the greatest weight of a block: ends are cut off where that
    makes the block's part of the layer's outputs, on the inputs that the float model's layer has on this data, less
    wrong. 49 pairs of cuts are tried, 7 if symmetric, which is the search for clipping of Lin et al. 2023, "AWQ:
    Activation-aware weight quantization", [arXiv:2306.00978](https://arxiv.org/abs/2306.00978), without what else
    that does: no weight is scaled, and each is rounded to the nearest step. Rows of an Embedding are cut where they
    themselves get nearer.

    Args:
      model: A built keras.Model.
      spec: QuantizationSpec, a dict of its arguments, or None for 4 bits everywhere.
      calibrate: A tf.data.Dataset or another iterable of batches as `fit` takes them, inputs or tuples that begin with
        inputs; or one array, tensor or dict of such, which is taken 32 rows at a time. Labels are not used.

    Returns:
      The new model. One that holds quantized layers which its config does not know, as subclassed ones do, refuses
      `save`; `save_weights`, and `load_weights` into what quantize_model makes of the architecture, do the same.

    Raises:
      TypeError: It is no Keras model, or the spec is none.
      ValueError: The model is not built, no layer fits, it has adapters, or it cannot be made again from its config.

    Example:
      >>> model = keras.Sequential([keras.Input([64]), keras.layers.Dense(32), keras.layers.Dense(3, name="logits")])
      >>> small = metal_ops.quantize_model(model, {"bits": 4, "overrides": {"logits": {"bits": 8}}})
      >>> [layer.format.bits for layer in small.layers]
      [4, 8]
    """
    op = "quantize_model"
    spec = _spec(op, spec)
    _check(op, "model", model)
    if adapters.names(model):
        raise ValueError(
            f"[{op}] model: expected one without adapters, got {', '.join(adapters.names(model))}. Save them by "
            "metal_ops.adapters.save, quantize the model that they were added to, and load them beside that."
        )
    possible = [layer for layer in model._flatten_layers() if _kind(layer)]
    chosen = spec._chosen(op, possible)
    if not chosen:
        paths = ", ".join(_keras.path(layer) for layer in possible) or "none of this model"
        raise ValueError(
            f"[{op}] spec: no layer of it fits. Built Dense, Conv2D and Embedding layers can be quantized: {paths}."
        )
    picked = [layer for layer in possible if id(layer) in chosen]
    moments: dict[int, tf.Tensor] = {}
    if calibrate is not None:
        moments = _moments(op, model, picked, chosen, calibrate)

    def of(layer: Any) -> Any:
        form, kind = chosen[id(layer)], _kind(layer)
        assert kind is not None
        if calibrate is None:
            return kind.from_layer(layer, **form._asdict())
        return kind._with(layer, form, _clipped(kind._matrix(layer), form, moments.get(id(layer))))

    classes = {type(layer).__name__: type(layer) for layer in model._flatten_layers()}
    # A function that is traced while the model is built would keep the layers of then.
    with keras.saving.custom_object_scope(classes), _eagerly():
        return _Again(op, {id(layer): layer for layer in picked}, of).made(model)


class _Again:
    """Makes layers and models again, with others in the place of some."""

    def __init__(self, op: str, replaced: Mapping[int, Any], by: Callable[[Any], Any]) -> None:
        self._op, self._replaced, self._by = op, replaced, by
        self._new: dict[int, Any] = {}  # layers may be at several places

    def made(self, layer: Any) -> Any:
        if id(layer) not in self._new:
            if id(layer) in self._replaced:
                self._new[id(layer)] = self._by(layer)
            elif _is_graph(layer):
                self._new[id(layer)] = self._graph(layer)
            else:
                self._new[id(layer)] = self._object(layer)
        return self._new[id(layer)]

    def _graph(self, model: Any) -> Any:
        """A Sequential or functional model."""
        new = keras.models.clone_model(model, clone_function=self.made)
        if type(new) is not type(model):
            raise ValueError(
                f"[{self._op}] model: Keras cannot make {_named(model)} again with other layers. Give the one that it "
                "is inside: keras.Model(model.inputs, model.outputs)."
            )
        return new

    def _object(self, layer: Any) -> Any:
        """Any other layer, made by its config, then with its weights, then with the layers in it replaced."""
        try:
            new = _like(layer)
        except Exception as error:
            raise ValueError(
                f"[{self._op}] model: {_named(layer)} cannot be made again from its config; give it get_config and "
                f"from_config ({error})."
            ) from error
        if not isinstance(layer, keras.layers.Layer):
            return new  # one of keras.ops
        self._build(layer, new)
        fits = [w.shape for w in new.weights] == [w.shape for w in layer.weights]
        if not fits:
            raise ValueError(
                f"[{self._op}] model: {_named(layer)} made from its config has other weights; give it "
                "build_from_config, which builds it."
            )
        for old, variable in zip(layer.weights, new.weights, strict=True):
            variable.assign(old)
        if self._fill(layer, new) and not _config_holds(new):
            new.get_config = _no_config(_named(layer))
        if isinstance(layer, keras.Model) and layer.compiled:
            new.compile_from_config(layer.get_compile_config())
        return new

    def _build(self, layer: Any, new: Any) -> None:
        if not layer.built or new.built and len(new.weights) == len(layer.weights):
            return
        with warnings.catch_warnings(), contextlib.suppress(Exception):
            warnings.simplefilter("ignore")
            new.build_from_config(layer.get_build_config() or {})
        if len(new.weights) != len(layer.weights):
            for child, new_child in zip(layer._layers, new._layers, strict=False):
                self._build(child, new_child)
        new.built = True

    def _fill(self, layer: Any, new: Any) -> bool:
        """Replaces the layers in `new`; whether there were any."""
        any_replaced = False
        for child, made in zip(list(layer._layers), list(new._layers), strict=True):
            inner = any(id(each) in self._replaced for each in child._flatten_layers())
            if not inner:
                continue
            any_replaced = True
            if id(child) in self._replaced or _is_graph(child):
                self._put(new, made, self.made(child))
            else:
                self._fill(child, made)
                if not _config_holds(made):
                    made.get_config = _no_config(_named(child))
        return any_replaced

    def _put(self, parent: Any, old: Any, new: Any) -> None:
        parent._tracker.replace_tracked_value("layers", old, new)

        def swapped(value: Any) -> Any:
            if value is old:
                return new
            if isinstance(value, dict):
                for key, one in value.items():
                    if (other := swapped(one)) is not one:
                        value[key] = other
            elif isinstance(value, list):
                for i, one in enumerate(value):
                    if (other := swapped(one)) is not one:
                        value[i] = other
            elif type(value) is tuple and any(swapped(one) is not one for one in value):
                return tuple(swapped(one) for one in value)
            return value

        found = False
        for name, value in list(vars(parent).items()):
            if name not in ("_layers", "_tracker"):
                before = _held(value, old)
                other = swapped(value)
                if other is not value:
                    setattr(parent, name, other)
                found |= before
        if not found:
            raise ValueError(
                f"[{self._op}] model: {_named(parent)} holds {old.name} neither as an attribute nor in a list, tuple "
                f"or dict that is one, so that it cannot be replaced. spec.skip={old.name!r} leaves it as it is."
            )


def _like(layer: Any) -> Any:
    """By its config. Those of Lambda layers are code without what it refers to."""
    if type(layer) is not keras.layers.Lambda:
        return type(layer).from_config(layer.get_config())
    kept = {"mask": layer.mask, "arguments": layer.arguments, "output_shape": layer._output_shape}
    return type(layer)(layer.function, **kept, name=layer.name, dtype=layer.dtype_policy)


@contextlib.contextmanager
def _eagerly() -> Iterator[None]:
    before = tf.config.functions_run_eagerly()
    try:
        tf.config.run_functions_eagerly(True)
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def _held(value: Any, layer: Any) -> bool:
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        return any(_held(one, layer) for one in value)
    return value is layer


def _is_graph(layer: Any) -> bool:
    return isinstance(layer, keras.Sequential) or hasattr(layer, "_run_through_graph")


def _config_holds(layer: Any) -> bool:
    """Whether a layer's config has its quantized layers inside, as that of TimeDistributed has."""
    try:
        again = type(layer).from_config(layer.get_config())
    except (
        Exception
    ):  # a user's get_config or from_config: whatever it raises, nothing can be made of it
        return False
    quantized = [type(inner) for inner in layer._flatten_layers() if isinstance(inner, Quantized)]
    return quantized == [
        type(inner) for inner in again._flatten_layers() if isinstance(inner, Quantized)
    ]


def _no_config(name: str) -> Callable[[], Any]:
    def refuses() -> Any:
        raise ValueError(
            f"[quantize_model] The config of {name} does not know of the quantized layers in it: a file of the "
            "model could not be loaded. save_weights, and load_weights into what quantize_model makes of the "
            "architecture, do the same; export writes a SavedModel."
        )

    return refuses


def _kind(layer: Any) -> Any:
    """The class of quantized layer that a layer can become."""
    for kind in _KINDS:
        original = kind._original()
        if isinstance(layer, original) and type(layer).call is original.call and layer.built:
            other = getattr(layer, "quantization_mode", None) or layer.lora_enabled
            return None if other or isinstance(layer, Quantized) else kind
    return None


def _named(layer: Any) -> str:
    return f"{type(layer).__name__} {_keras.path(layer)!r}"


def _spec(op: str, spec: Any) -> QuantizationSpec:
    if isinstance(spec, QuantizationSpec):
        return spec
    if spec is not None and not isinstance(spec, Mapping):
        raise TypeError(
            f"[{op}] spec: expected metal_ops.QuantizationSpec, a dict of its arguments or None, got "
            f"{type(spec).__name__}."
        )
    arguments = dict(spec or {})
    names = [field.name for field in dataclasses.fields(QuantizationSpec)]
    for name in arguments:
        if name not in names:
            raise ValueError(f"[{op}] spec: expected {', '.join(names)}, got {name!r}.")
    return QuantizationSpec(**arguments)


def _check(op: str, argument: str, model: Any) -> None:
    if not isinstance(model, keras.Model):
        raise TypeError(f"[{op}] {argument}: expected a keras.Model, got {type(model).__name__}.")
    if not model.built:
        raise ValueError(
            f"[{op}] {argument}: expected one that is built, got {model.name}. Call it once."
        )


# ---- calibration ----------------------------------------------------------------------------------------------------


def _batches(op: str, argument: str, data: Any) -> Iterator[Any]:
    """The inputs of each batch; at least one."""
    if isinstance(data, tf.Tensor | dict) or hasattr(data, "__array_interface__"):
        data = tf.data.Dataset.from_tensor_slices(data).batch(32)
    elif not isinstance(data, tf.data.Dataset) and not hasattr(data, "__iter__"):
        raise TypeError(
            f"[{op}] {argument}: expected a tf.data.Dataset, batches or an array, got {type(data).__name__}."
        )
    empty = True
    for batch in data:
        empty = False
        yield batch[0] if isinstance(batch, tuple) else batch
    if empty:
        raise ValueError(f"[{op}] {argument}: expected one batch or more, got none.")


@contextlib.contextmanager
def _listening(layers: list[Any], heard: Callable[[int, tf.Tensor, tf.Tensor], None]) -> Iterator[None]:  # fmt: skip
    """Tells of each call of some layers: which one, its inputs and its outputs, which are never symbolic."""

    def wrapped(i: int, call: Callable[..., Any]) -> Callable[..., Any]:
        def listens(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = call(inputs, *args, **kwargs)
            heard(i, inputs, outputs)
            return outputs

        return listens

    own = [vars(layer).get("call") for layer in layers]
    try:
        for i, layer in enumerate(layers):
            layer.call = wrapped(i, layer.call)
        with _eagerly():
            yield
    finally:
        for layer, call in zip(layers, own, strict=True):
            if call is not None:
                layer.call = call
            elif "call" in vars(layer):
                del layer.call


def _moments(
    op: str, model: Any, layers: list[Any], forms: Mapping[int, Format], data: Any
) -> dict[int, tf.Tensor]:
    """Sums of x x^T over the inputs x of layers, for each block of them, [groups, blocks, size, size]."""
    sums: dict[int, tf.Tensor] = {}
    listened = [layer for layer in layers if _kind(layer) is not QuantizedEmbedding]

    def heard(i: int, inputs: tf.Tensor, outputs: tf.Tensor) -> None:
        layer = listened[i]
        form = forms[id(layer)]
        for x in _rows(layer, tf.cast(inputs, tf.float32)):  # [rows, groups, inputs]
            size = form.block or x.shape[-1]
            n_blocks = -(-x.shape[-1] // size)
            x = tf.pad(x, [[0, 0], [0, 0], [0, n_blocks * size - x.shape[-1]]])
            x = tf.transpose(tf.reshape(x, [-1, x.shape[1], n_blocks, size]), [1, 2, 0, 3])
            product = tf.matmul(x, x, transpose_a=True)
            sums[id(layer)] = sums[id(layer)] + product if id(layer) in sums else product

    with _listening(listened, heard):
        for batch in _batches(op, "calibrate", data):
            model(batch, training=False)
    return sums


def _rows(layer: Any, x: tf.Tensor) -> Iterator[tf.Tensor]:
    """What a layer's weights are multiplied with, [rows, groups, inputs], a part of the batch at a time."""
    if not isinstance(layer, keras.layers.Conv2D):
        yield tf.reshape(x, [-1, 1, x.shape[-1]])
        return
    if layer.data_format == "channels_first":
        x = tf.transpose(x, [0, 2, 3, 1])
    each = math.prod(x.shape[1:]) * math.prod(layer.kernel_size)
    at_once = max(1, _MOST_PATCHES // max(1, each))
    for first in range(0, x.shape[0], at_once):
        patches = tf.image.extract_patches(
            x[first : first + at_once],
            [1, *layer.kernel_size, 1],
            [1, *layer.strides, 1],
            [1, *layer.dilation_rate, 1],
            layer.padding.upper(),
        )
        groups, taps = layer.groups, math.prod(layer.kernel_size)
        patches = tf.reshape(patches, [-1, taps, groups, x.shape[-1] // groups])
        patches = tf.transpose(patches, [0, 2, 1, 3])
        yield tf.reshape(patches, [patches.shape[0], groups, -1])


def _clipped(weights: tf.Tensor, form: Format, moments: tf.Tensor | None) -> QuantizedWeights:
    """Weights rounded to steps that reach as far as is best for sums of x x^T; None: for the weights themselves."""
    blocks = Blocks(weights, form)
    least, greatest = blocks.extent
    n_outputs, n_blocks, size = blocks.rows.shape
    # Not what fills the last block, whose moments are zeros.
    there = tf.reshape(tf.range(n_blocks * size) < weights.shape[0], [n_blocks, size])
    there = tf.cast(there, tf.float32)

    def error(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
        off = blocks.meant(*blocks.rounded(low, high)) - blocks.rows
        if moments is None:
            each = tf.reduce_sum(off * off * there, 2)
        else:
            # Of the groups' outputs those of a block side by side, for a product of matrices.
            off = tf.reshape(off, [moments.shape[0], -1, n_blocks, size])
            off = tf.transpose(off, [0, 2, 1, 3])
            each = tf.reduce_sum(tf.matmul(off, moments) * off, 3)
            each = tf.reshape(tf.transpose(each, [0, 2, 1]), [n_outputs, n_blocks])
        return tf.reduce_sum(each, 0, keepdims=True) if form.per_tensor else each

    best_low, best_high, best = least, greatest, error(least, greatest)
    for below in (0.0,) if form.symmetric else _CUTS:
        for above in _CUTS:
            extent = greatest if form.symmetric else greatest - least
            low, high = least + below * extent, greatest - above * extent
            found = error(low, high)
            better = found < best
            best = tf.where(better, found, best)
            best_low = tf.where(better, low, best_low)
            best_high = tf.where(better, high, best_high)
    return blocks.packed(best_low, best_high)


# ---- report ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class LayerError:
    """One line of a `QuantizationReport`.

    Attributes:
      layer: Its path.
      bits: Of its codes.
      alone: |y' - y| / |y| of its outputs y on the float model's inputs, all of the data together.
      error: The same in the quantized model, whose earlier layers have made its inputs inexact.
      bytes_before: Of its variables.
      bytes_after: Of its variables, quantized.

    Example:
      >>> metal_ops.LayerError("dense", 4, 0.05, 0.06, 1000, 160).bits
      4
    """

    layer: str
    bits: int
    alone: float
    error: float
    bytes_before: int
    bytes_after: int


@dataclasses.dataclass(frozen=True)
class QuantizationReport:
    """How far off a quantized model is. Printing it shows a table.

    Attributes:
      rows: A `LayerError` for each quantized layer, in the model's order.
      error: |y' - y| / |y| of the model's outputs.
      bytes_before: Of all of the model's variables.
      bytes_after: Of those of the quantized one.

    Example:
      >>> row = metal_ops.LayerError("dense", 4, 0.05, 0.06, 1000, 160)
      >>> print(metal_ops.QuantizationReport((row,), 0.06, 1000, 160))
      layer          bits     alone  in model         bytes         after
      dense             4     5.00%     6.00%         1,000           160
      the model                         6.00%         1,000           160
    """

    rows: tuple[LayerError, ...]
    error: float
    bytes_before: int
    bytes_after: int

    def __str__(self) -> str:
        wide = max(len("the model"), *(len(row.layer) for row in self.rows)) + 2
        head = f"{'bits':>8}{'alone':>10}{'in model':>10}{'bytes':>14}{'after':>14}"
        lines = [f"{'layer':<{wide}}{head}"]
        for row in self.rows:
            lines.append(
                f"{row.layer:<{wide}}{row.bits:>8}{row.alone:>10.2%}{row.error:>10.2%}"
                f"{row.bytes_before:>14,}{row.bytes_after:>14,}"
            )
        lines.append(
            f"{'the model':<{wide}}{'':>18}{self.error:>10.2%}{self.bytes_before:>14,}{self.bytes_after:>14,}"
        )
        return "\n".join(lines)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draws errors and bytes of the layers, as a PNG or what else the name ends with: whole, or not at all.

        Args:
          path: Where to; a file there is replaced.

        Raises:
          OSError: It cannot be written.

        Example:
          >>> import tempfile
          >>> row = metal_ops.LayerError("dense", 4, 0.05, 0.06, 1000, 160)
          >>> metal_ops.QuantizationReport((row,), 0.06, 1000, 160).plot(tempfile.mkdtemp() + "/errors.png")
        """
        from matplotlib.figure import Figure  # takes long, and few draw

        from metal_ops.programs.files import atomic

        names = [f"{row.layer}, {row.bits} bits" for row in self.rows]
        figure = Figure(figsize=(10, 1.4 + 0.32 * len(names)), layout="constrained")
        errors, sizes = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        places = range(len(names))
        for axes, bars in (
            (errors, (("in the model", "error", 100.0), ("alone", "alone", 100.0))),
            (sizes, (("floats", "bytes_before", 1e-3), ("quantized", "bytes_after", 1e-3))),
        ):
            for offset, (label, field, scale) in zip((-0.2, 0.2), bars, strict=True):
                values = [getattr(row, field) * scale for row in self.rows]
                axes.barh([place + offset for place in places], values, 0.38, label=label)
            axes.grid(alpha=0.3, axis="x")
            axes.legend(fontsize=8)
        errors.set_yticks(places, names, fontsize=8)
        errors.invert_yaxis()
        errors.set(xlabel="relative error of the outputs, %")
        sizes.set(xlabel="kB, by powers of ten", xscale="log")
        figure.suptitle(
            f"outputs of the model are off by {self.error:.2%}, "
            f"{self.bytes_before / max(1, self.bytes_after):.1f} times smaller",
            fontsize=10,
        )
        with atomic(Path(path)) as temporary:
            figure.savefig(temporary, dpi=110)


def quantization_report(model: keras.Model, quantized: keras.Model, data: Any) -> QuantizationReport:  # fmt: skip
    """Compares a model with what `quantize_model` made of it, layer by layer, on data.

    Both models are called on each batch, without training and without graphs.

    Args:
      model: The one with floats.
      quantized: What quantize_model made of it.
      data: As `quantize_model` takes to calibrate.

    Returns:
      QuantizationReport.

    Raises:
      TypeError: Those are no Keras models, or the data is none.
      ValueError: The models do not belong together, none of the layers is quantized, or there is no data.

    Example:
      >>> keras.utils.set_random_seed(1)
      >>> model = keras.Sequential([keras.Input([64]), keras.layers.Dense(3, name="out")])
      >>> small = metal_ops.quantize_model(model, {"bits": 8})
      >>> report = metal_ops.quantization_report(model, small, tf.random.normal([100, 64]))
      >>> report.rows[0].bits, report.rows[0].bytes_before, report.rows[0].bytes_after, report.error < 0.01
      (8, 780, 252, True)
    """
    op = "quantization_report"
    _check(op, "model", model)
    _check(op, "quantized", quantized)
    pairs = _pairs(op, model, quantized)
    squares = [[0.0, 0.0, 0.0] for _ in pairs]  # of y, of errors alone, of errors in the model
    of_model = [0.0, 0.0]
    right: list[list[tf.Tensor]] = []

    def on_floats(i: int, inputs: tf.Tensor, outputs: tf.Tensor) -> None:
        squares[i][0] += _square(outputs)
        squares[i][1] += _square(pairs[i][1](inputs), outputs)
        right[i].append(outputs)

    def on_codes(i: int, inputs: tf.Tensor, outputs: tf.Tensor) -> None:
        squares[i][2] += _square(outputs, right[i].pop(0))

    for batch in _batches(op, "data", data):
        right = [[] for _ in pairs]
        with _listening([layer for layer, _ in pairs], on_floats):
            floats = model(batch, training=False)
        with _listening([layer for _, layer in pairs], on_codes):
            found = quantized(batch, training=False)
        for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(floats), strict=True):
            of_model[0] += _square(other)
            of_model[1] += _square(one, other)
    rows = tuple(
        LayerError(
            _keras.path(layer),
            new.format.bits,
            _ratio(alone, of_y),
            _ratio(inside, of_y),
            _bytes(layer),
            _bytes(new),
        )
        for (layer, new), (of_y, alone, inside) in zip(pairs, squares, strict=True)
    )
    return QuantizationReport(rows, _ratio(*of_model[::-1]), _bytes(model), _bytes(quantized))


def _pairs(op: str, model: Any, quantized: Any) -> list[tuple[Any, Any]]:
    """Layers and what they became."""
    ones, others = model._flatten_layers(), quantized._flatten_layers()
    pairs = list(zip(ones, others, strict=False))
    for one, other in pairs:
        became = type(other) is _kind(one) and one.name == other.name
        if not became and type(one) is not type(other):
            raise ValueError(
                f"[{op}] quantized: expected what quantize_model made of the model, got {_named(other)} in the place "
                f"of {_named(one)}."
            )
    if len(ones) != len(others):
        raise ValueError(
            f"[{op}] quantized: expected what quantize_model made of the model with {len(ones)} layers, got "
            f"{len(others)}."
        )
    found = [(one, other) for one, other in pairs if type(one) is not type(other)]
    if not found:
        raise ValueError(f"[{op}] quantized: expected quantized layers, got none.")
    return found


def _square(y: tf.Tensor, from_y: tf.Tensor | None = None) -> float:
    y = tf.cast(y, tf.float32)
    if from_y is not None:
        y -= tf.cast(from_y, tf.float32)
    return float(tf.reduce_sum(y * y))


def _ratio(square: float, of: float) -> float:
    return math.sqrt(square / of) if of else math.inf if square else 0.0


def _bytes(layer: Any) -> int:
    return sum(math.prod(w.shape) * tf.as_dtype(w.dtype).size for w in layer.weights)
