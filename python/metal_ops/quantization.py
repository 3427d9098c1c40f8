"""Keras models with weights of 2 to 8 bits, and how far off their layers are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras, adapters
from metal_ops._calibration import calibrated, moments_of
from metal_ops._quantization_report import LayerError, QuantizationReport, quantization_report
from metal_ops._quantized_layers import check, eagerly, kind_of
from metal_ops._quantized_remade import Again
from metal_ops.layers import QuantizedDense
from metal_ops.ops._formats import Format
from metal_ops.ops.quantized_matmul import check_dynamic

__all__ = ["LayerError", "QuantizationReport", "QuantizationSpec"]
__all__ += ["quantization_report", "quantize_model"]
__theme__ = "Quantization"

_HOW = (*Format._fields, "dynamic")


@dataclasses.dataclass(frozen=True)
class QuantizationSpec:
    """The layers that `quantize_model` quantizes, and the bits of their weights.

    A pattern is a name, a class of Keras', a function of the layer, or a list of such. A name is that of a layer, of
    one that it lies in, the model included, or a regular expression of whole parts of its path: "block/dense_.*".

    Attributes:
      bits: Bits of a code: 4 or 8; with lookup 2, 3, 4, 6 or 8.
      block: Neighbouring inputs of an output that share a scale, a multiple of 32; None: all of them.
      symmetric: Whether there are no minima.
      per_tensor: Whether all outputs share scales.
      scales: Their dtype, or that of tables: float16 or float32. None: float16 for 4 bits and tables, float32 for 8.
      layers: The pattern of those that are quantized; None: all that can be.
      skip: The pattern of those of them that stay as they are; None: none.
      overrides: Differences for the layers of a pattern, such as {"logits": {"bits": 8}}; the last of several that fit
        a layer counts.
      lookup: Neighbouring outputs that share a lookup table, 0 for all of them; None: there are scales.
      dynamic: Whether Dense layers round their inputs to 8 bits, see `quantized_matmul`; others never do.

    Raises:
      TypeError: A pattern is none, or overrides is no dict of dicts.
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
    lookup: int | None = None
    dynamic: bool = False

    def __post_init__(self) -> None:
        op = "QuantizationSpec"
        self._how(op, {})
        for argument in ("layers", "skip"):
            _keras.matching(op, argument, getattr(self, argument))
        if not isinstance(self.overrides, Mapping):
            raise TypeError(
                f"[{op}] overrides: expected a dict from patterns to arguments, got {type(self.overrides).__name__}."
            )
        for pattern, differing in self.overrides.items():
            _keras.matching(op, "overrides", pattern)
            if not isinstance(differing, Mapping):
                raise TypeError(
                    f"[{op}] overrides[{pattern!r}]: expected a dict such as {{'bits': 8}}, got {differing!r}."
                )
            other = set(differing) - set(_HOW)
            if other:
                raise ValueError(
                    f"[{op}] overrides: expected {', '.join(_HOW)}, got {min(other)!r}."
                )
            self._how(op, differing)

    def _how(self, op: str, differing: Mapping[str, Any]) -> tuple[Format, bool]:
        """The format of weights, and whether inputs are rounded."""
        said = {field: getattr(self, field) for field in _HOW} | dict(differing)
        dynamic = said.pop("dynamic")
        form = Format.checked(op, **said)
        check_dynamic(op, dynamic, form.lookup is not None)
        return form, dynamic

    def _chosen(
        self, op: str, every: list[Any], possible: list[Any], names: _keras.Names
    ) -> dict[int, tuple[Format, bool]]:
        """How the layers, by their id, are quantized; `every` layer of the model may be named."""
        fits = _keras.matching(op, "spec.layers", self.layers, names)
        stays = _keras.matching(op, "spec.skip", self.skip, names)
        differing = [
            (_keras.matching(op, "spec.overrides", pattern, names), dict(values))
            for pattern, values in self.overrides.items()
        ]
        for argument, pattern in (
            ("layers", self.layers),
            ("skip", self.skip),
            *(("overrides", pattern) for pattern in self.overrides),
        ):
            _keras.check_found(op, f"spec.{argument}", pattern, every, names)
        chosen = {}
        for layer in possible:
            if fits(layer) and not (self.skip is not None and stays(layer)):
                of_it: dict[str, Any] = {}
                for fits_it, values in differing:
                    of_it |= values if fits_it(layer) else {}
                chosen[id(layer)] = self._how(op, of_it)
        return chosen


def quantize_model(model: keras.Model, spec: Any = None, calibrate: Any = None) -> keras.Model:
    """A model like the given one whose Dense, Conv2D and Embedding layers have weights of 2 to 8 bits.

    The given model stays as it is, and everything that is not quantized has its weights. Sequential and functional
    models, models in models and layers in layers are made again by Keras' configs, and so are subclassed
    models whose layers are attributes, or in lists, tuples or dicts that are. The floats that were quantized are
    not kept. A compiled model is compiled again; only weights that are no codes are trained.

    With `calibrate`, steps may stop short of the least and the greatest weight of a block: ends are cut off where that
    reduces the error of the block's part of the layer's outputs, on the inputs that the float model's layer has on
    this data. 49 pairs of cuts are tried, 7 if symmetric. That is the search for clipping of Lin et al. 2023, "AWQ:
    Activation-aware weight quantization", [arXiv:2306.00978](https://arxiv.org/abs/2306.00978), and no other part of
    the paper: no weight is scaled, and each is rounded to the nearest step. Rows of an Embedding are cut where that
    reduces their own error. For lookup tables the data gives the weight of an error: its square times the mean of its
    input's square.

    Args:
      model: A built keras.Model.
      spec: QuantizationSpec, a dict of its arguments, or None for 4 bits everywhere.
      calibrate: A tf.data.Dataset or another iterable of batches as `fit` takes them, inputs or tuples that begin with
        inputs; or one array, tensor or dict of such, which is taken 32 rows at a time. Labels are not used.

    Returns:
      The new model. One that holds quantized layers which its config does not know, as subclassed ones do, refuses
      `save`; `save_weights`, and `load_weights` into the result of quantize_model for the architecture, do the same.

    Raises:
      TypeError: It is no Keras model, or the spec is none.
      ValueError: The model is not built, no layer fits, a name is no layer's, it has adapters, it cannot be made again
        from its config, or a layer's inputs on the data to calibrate with are not finite.

    Example:
      >>> model = keras.Sequential([keras.Input([64]), keras.layers.Dense(32), keras.layers.Dense(3, name="logits")])
      >>> small = metal_ops.quantize_model(model, {"bits": 4, "overrides": {"logits": {"bits": 8}}})
      >>> [layer.format.bits for layer in small.layers]
      [4, 8]
    """
    op = "quantize_model"
    spec = _spec(op, spec)
    check(op, "model", model)
    if adapters.names(model):
        raise ValueError(
            f"[{op}] model: expected one without adapters, got {', '.join(adapters.names(model))}. Save them by "
            "metal_ops.adapters.save, quantize the model that they were added to, and load them beside that."
        )
    possible = [layer for layer in model._flatten_layers() if kind_of(layer)]
    called = _keras.Names(model)
    chosen = spec._chosen(op, model._flatten_layers(), possible, called)
    if not chosen:
        paths = ", ".join(called.of(layer) for layer in possible) or "none of this model"
        raise ValueError(
            f"[{op}] spec: no layer of it fits. Built Dense, Conv2D and Embedding layers can be quantized: {paths}."
        )
    picked = [layer for layer in possible if id(layer) in chosen]
    moments: dict[int, tf.Tensor] = {}
    if calibrate is not None:
        forms = {of: form for of, (form, _) in chosen.items()}
        moments = moments_of(op, model, picked, forms, calibrate)

    def of(layer: Any) -> Any:
        (form, dynamic), kind = chosen[id(layer)], kind_of(layer)
        assert kind is not None
        more = {"dynamic": dynamic} if kind is QuantizedDense else {}
        if calibrate is None:
            return kind.from_layer(layer, **form._asdict(), **more)
        weights = calibrated(op, kind._matrix(layer), form, moments.get(id(layer)))
        return kind._with(layer, form, weights, **more)

    classes = {type(layer).__name__: type(layer) for layer in model._flatten_layers()}
    # A function that is traced while the model is built would keep the layers of then.
    with keras.saving.custom_object_scope(classes), eagerly():
        return Again(op, {id(layer): layer for layer in picked}, of).made(model)


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
