"""Adapters beside a trained model's matrices: the program learns them with `--adapters`, and writes with them.

The matrices, floats or codes, become layers of Keras that hold them, without a copy, so that `metal_ops.adapters` can
put its own beside them.
"""

from __future__ import annotations

import copy
import dataclasses
import zlib
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from metal_ops import QuantizedWeights, adapters
from metal_ops.layers import QuantizedDense
from metal_ops.programs.errors import CheckpointError, OutputError, ProgramError
from metal_ops.programs.reading import kind_of
from metal_ops.programs.workers import Workers

from .config import TrainConfig
from .model import Transformer
from .tokenizers import Tokenizer
from .train import Trainer

FILE_NAME = "adapter.npz"


class _Floats(keras.layers.Dense):
    """A matrix [inputs, outputs] that is there already."""

    def __init__(self, matrix: Any, name: str) -> None:
        super().__init__(matrix.shape[1], use_bias=False, dtype="float32", name=name)
        self._kernel = matrix
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: matrix.shape[0]})
        self.built = True


class _Codes(QuantizedDense):
    """The same, quantized."""

    def __init__(self, matrix: QuantizedWeights, name: str, dynamic: bool) -> None:
        super().__init__(
            matrix.shape[1], use_bias=False, dtype="float32", name=name, dynamic=dynamic
        )
        self._matrix_there, self.bias = matrix, None
        self.input_spec = keras.layers.InputSpec(min_ndim=2, axes={-1: matrix.shape[0]})
        self.built = True

    @property
    def quantized(self) -> QuantizedWeights:
        return self._matrix_there


class _All(keras.layers.Layer):
    """The layers of a model, for `metal_ops.adapters`, which looks for them in one."""

    def __init__(self, matrices: list[dict[str, Any]]) -> None:
        super().__init__(name="matrices")
        self.parts = [layer for one in matrices for layer in one.values()]
        self.built = True


def wrapped(model: Transformer) -> tuple[Transformer, _All]:
    """The same model with layers for matrices, and these. All weights are shared."""

    def layer(matrix: Any, name: str) -> Any:
        if isinstance(matrix, QuantizedWeights):
            return _Codes(matrix, name, model.dynamic)
        return _Floats(matrix, name)

    other = copy.copy(model)
    other.matrices = [
        {name: layer(matrix, f"layer{i}_{name}") for name, matrix in one.items()}
        for i, one in enumerate(model.matrices)
    ]
    return other, _All(other.matrices)


def name_beside(model: Transformer) -> str:
    """The name that adapters of a base have. Its norms tell: they are floats also where matrices are quantized."""
    norms = [*(norm for one in model.norms for norm in one.values()), model.last_norm]
    content = b"".join(np.asarray(norm, np.float32).tobytes() for norm in norms)
    return f"beside-{zlib.crc32(content):08x}"


def load(model: Transformer, path: Path) -> Transformer:
    """The model with the adapter of a file, or of a run's folder; the weights of both are shared.

    Raises:
      CheckpointError: It is not there, is no adapter, or one of another base.
    """
    kind = kind_of(path, CheckpointError)
    file = path / FILE_NAME if kind == "folder" else path
    if not kind_of(file, CheckpointError):
        raise CheckpointError(f"{file}: no such adapter; `lm train --adapters` makes one.")
    other, layers = wrapped(model)
    try:
        adapters.load(layers, file)
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        argument, _, sentence = str(error).partition("] ")[2].partition(": ")
        remedy = (
            "Train it again" if argument == "path" else "Give the base that it was trained beside"
        )
        raise CheckpointError(f"{file}: {sentence} {remedy}.") from None
    (name,), wanted = adapters.names(layers), name_beside(model)
    if name != wanted:
        raise CheckpointError(
            f"{file}: is {name!r}, and this base's adapters are {wanted!r}: other weights. Give the base that it was "
            "trained beside, or train one for this."
        )
    return other


class AdapterTrainer(Trainer):
    """Learns an adapter beside a model, whose weights stay as they are.

    Args:
      text: Bytes to train on and bytes to measure on, uint8.
      base: The model.
      tokenizer: Its own; None for bytes.
      config: How to learn.
      context: Tokens of a piece.
      rank, alpha: See `metal_ops.adapters.add`.
      of: Where the base is, for the files.
      workers: With whom: see `Trainer`.
    """

    file_name = FILE_NAME

    def __init__(
        self,
        text: tuple[np.ndarray, np.ndarray],
        base: Transformer,
        tokenizer: Tokenizer | None,
        config: TrainConfig,
        context: int,
        rank: int,
        alpha: float,
        of: str,
        workers: Workers | None = None,
    ) -> None:
        keras.utils.set_random_seed(config.seed)  # of the adapter's initial values
        self._adapted, self._layers = wrapped(base)
        self._name, self.of = name_beside(base), of
        self._sizes: dict[str, Any] = {"rank": rank, "alpha": alpha}
        adapters.add(self._layers, rank, alpha, name=self._name)
        tokens = text if tokenizer is None else tuple(_tokens(t, tokenizer) for t in text)
        # Bits per byte are measured, as in other runs: so many bits per token.
        self._density = [t.size / part.size for t, part in zip(tokens, text, strict=True)]
        if min(t.size for t in tokens) < context + 1:
            raise ProgramError(
                f"the text has {tokens[0].size} tokens, and {tokens[1].size} are held back: each needs {context + 1}; "
                "give more text, or a shorter --context."
            )
        model = dataclasses.replace(base.config, context=context)
        super().__init__((tokens[0], tokens[1]), model, config, workers)
        self.tokenizer = tokenizer

    def _made(self) -> tuple[Transformer, list[tf.Variable]]:
        return self._adapted, [variable.value for variable in self._layers.trainable_variables]

    @property
    def bytes_seen(self) -> int:
        return round(super().bytes_seen / self._density[0])

    def train_step(self) -> float:
        return super().train_step() * self._density[0]

    def held_out(self) -> float:
        return super().held_out() * self._density[1]

    def about(self) -> dict[str, Any]:
        return {"base": self.of, **self._sizes, **super().about()}

    def agree(self) -> None:
        """Also about the base, which each has read."""
        if self.workers is not None:
            self.workers.agree_on("the base", zlib.crc32(self._name.encode()))
        super().agree()

    def _state(self) -> dict[str, Any]:
        """The variables that change: the adapter's, and not the base's."""
        kept = super()._state()
        return {
            **{f"adapter{i}": variable for i, variable in enumerate(self.variables)},
            **{name: v for name, v in kept.items() if name.startswith("optimizer")},
        }

    def save(self, path: Path, data: str | None) -> None:
        """Writes the adapter alone."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            adapters.save(self._layers, path, self._name)
        except OSError as error:
            raise OutputError(
                f"{path}: cannot be written ({error.strerror or error}); make room, or give another folder by --runs."
            ) from error

    def to_write(self, folder: Path) -> str:
        model = f"{self.of}" if self.tokenizer is None else f"--model {self.of}"
        return f"{model} --adapters {folder}"


def _tokens(text: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    return np.asarray(tokenizer.encode(text.tobytes(), True), np.int32)
