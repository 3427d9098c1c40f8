"""How far off the layers of a quantized model are."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from metal_ops import _keras
from metal_ops._quantized_layers import batches, check, kind_of, listening, named

__theme__ = "Quantization"


@dataclasses.dataclass(frozen=True)
class LayerError:
    """One line of a `QuantizationReport`.

    Attributes:
      layer: Its path.
      bits: Bits of its codes; None where it stays as it is, as are the errors then.
      alone: |y' - y| / |y| of its outputs y on the float model's inputs, all of the data together.
      error: The same in the quantized model, whose earlier layers have made its inputs inexact.
      bytes_before: Bytes of its variables, without those of layers in it.
      bytes_after: Bytes of its variables, quantized.

    Example:
      >>> metal_ops.LayerError("dense", 4, 0.05, 0.06, 1000, 160).bits
      4
    """

    layer: str
    bits: int | None
    alone: float | None
    error: float | None
    bytes_before: int
    bytes_after: int


@dataclasses.dataclass(frozen=True)
class QuantizationReport:
    """How far off a quantized model is. Printing it shows a table.

    Attributes:
      rows: A `LayerError` for each layer with variables, in the model's order: their bytes add up to the model's.
      error: |y' - y| / |y| of the model's outputs.
      bytes_before: Bytes of all of the model's variables.
      bytes_after: Bytes of those of the quantized one.

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
            errors = ("-" if e is None else f"{e:.2%}" for e in (row.alone, row.error))
            numbers = "".join(f"{error:>10}" for error in errors)
            lines.append(
                f"{row.layer:<{wide}}{row.bits or '-':>8}{numbers}{row.bytes_before:>14,}{row.bytes_after:>14,}"
            )
        lines.append(
            f"{'the model':<{wide}}{'':>18}{self.error:>10.2%}{self.bytes_before:>14,}{self.bytes_after:>14,}"
        )
        return "\n".join(lines)

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draws errors and bytes of the quantized layers, as a PNG or another format that the name ends with: whole, or
        not at all.

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
        from metal_ops.programs.pictures import plain_powers

        rows = [row for row in self.rows if row.bits is not None]
        names = [f"{row.layer}, {row.bits} bits" for row in rows]
        figure = Figure(figsize=(10, 1.4 + 0.32 * len(names)), layout="constrained")
        errors, sizes = figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
        places = range(len(names))
        for axes, bars in (
            (errors, (("in the model", "error", 100.0), ("alone", "alone", 100.0))),
            (sizes, (("floats", "bytes_before", 1e-3), ("quantized", "bytes_after", 1e-3))),
        ):
            for offset, (label, field, scale) in zip((-0.2, 0.2), bars, strict=True):
                values = [getattr(row, field) * scale for row in rows]
                axes.barh([place + offset for place in places], values, 0.38, label=label)
            axes.grid(alpha=0.3, axis="x")
            axes.legend(fontsize=8)
        errors.set_yticks(places, names, fontsize=8)
        errors.invert_yaxis()
        errors.set(xlabel="relative error of the outputs, %")
        sizes.set(xlabel="kB, by powers of ten", xscale="log")
        plain_powers(sizes.xaxis)
        figure.suptitle(
            f"outputs of the model are off by {self.error:.2%}, "
            f"{self.bytes_before / max(1, self.bytes_after):.1f} times smaller",
            fontsize=10,
        )
        with atomic(Path(path)) as temporary:
            figure.savefig(temporary, dpi=110)


def quantization_report(model: keras.Model, quantized: keras.Model, data: Any) -> QuantizationReport:  # fmt: skip
    """Compares a model with its quantized form from `quantize_model`, layer by layer, on data.

    Both models are called on each batch, without training and without graphs.

    Args:
      model: The one with floats.
      quantized: The result of quantize_model for it.
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
    check(op, "model", model)
    check(op, "quantized", quantized)
    every = _pairs(op, model, quantized)
    pairs = [(one, other) for one, other in every if type(one) is not type(other)]
    if not pairs:
        raise ValueError(f"[{op}] quantized: expected quantized layers, got none.")
    squares = [[0.0, 0.0, 0.0] for _ in pairs]  # of y, of errors alone, of errors in the model
    of_model = [0.0, 0.0]
    right: list[list[tf.Tensor]] = []

    def on_floats(i: int, inputs: tf.Tensor, outputs: tf.Tensor) -> None:
        squares[i][0] += _square(outputs)
        squares[i][1] += _square(pairs[i][1](inputs), outputs)
        right[i].append(outputs)

    def on_codes(i: int, inputs: tf.Tensor, outputs: tf.Tensor) -> None:
        squares[i][2] += _square(outputs, right[i].pop(0))

    for batch in batches(op, "data", data):
        right = [[] for _ in pairs]
        with listening([layer for layer, _ in pairs], on_floats):
            floats = model(batch, training=False)
        with listening([layer for _, layer in pairs], on_codes):
            found = quantized(batch, training=False)
        for one, other in zip(tf.nest.flatten(found), tf.nest.flatten(floats), strict=True):
            of_model[0] += _square(other)
            of_model[1] += _square(one, other)
    errors = {
        id(layer): (new.format.bits, _ratio(alone, of_y), _ratio(inside, of_y))
        for (layer, new), (of_y, alone, inside) in zip(pairs, squares, strict=True)
    }
    rows = []
    called = _keras.Names(model)
    before_of, after_of = (_own_bytes(layers) for layers in zip(*every, strict=True))
    for (layer, _), before, after in zip(every, before_of, after_of, strict=True):
        bits, alone, inside = errors.get(id(layer), (None, None, None))
        if before or bits is not None:
            rows.append(LayerError(called.of(layer), bits, alone, inside, before, after))
    return QuantizationReport(
        tuple(rows), _ratio(*of_model[::-1]), _bytes(model), _bytes(quantized)
    )


def _pairs(op: str, model: Any, quantized: Any) -> list[tuple[Any, Any]]:
    """The layers of both models, and the models themselves. Models made again do not share their inputs."""
    ones, others = (
        [one for one in whole._flatten_layers() if not isinstance(one, keras.layers.InputLayer)]
        for whole in (model, quantized)
    )
    pairs = list(zip(ones, others, strict=False))
    for one, other in pairs:
        became = type(other) is kind_of(one) and one.name == other.name
        if not became and type(one) is not type(other):
            raise ValueError(
                f"[{op}] quantized: expected what quantize_model made of the model, got {named(other)} in the place "
                f"of {named(one)}."
            )
    if len(ones) != len(others):
        raise ValueError(
            f"[{op}] quantized: expected what quantize_model made of the model with {len(ones)} layers, got "
            f"{len(others)}."
        )
    return pairs


def _square(y: tf.Tensor, from_y: tf.Tensor | None = None) -> float:
    y = tf.cast(y, tf.float32)
    if from_y is not None:
        y -= tf.cast(from_y, tf.float32)
    return float(tf.reduce_sum(y * y))


def _ratio(square: float, of: float) -> float:
    return math.sqrt(square / of) if of else math.inf if square else 0.0


def _own_bytes(layers: Sequence[Any]) -> list[int]:
    """Bytes of each layer's variables that no layer in it has: each variable counts once."""
    seen, found = set[int](), dict[int, int]()
    # Those that lie in others first.
    for layer in sorted(layers, key=lambda one: len(list(one._flatten_layers()))):
        own = [w for w in layer.weights if id(w) not in seen]
        seen.update(map(id, own))
        found[id(layer)] = _bytes_of(own)
    return [found[id(layer)] for layer in layers]


def _bytes_of(weights: Any) -> int:
    return sum(math.prod(w.shape) * tf.as_dtype(w.dtype).size for w in weights)


def _bytes(layer: Any) -> int:
    return _bytes_of(layer.weights)
