"""Layers at whose sizes benchmarks.device_ops measures: ResNet-50's, BERT-base's, LSTMs and GRUs of 512 cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.device_arguments import Arguments, recurrent, values

BATCH = 8
CELL_BATCH = 32
TOKENS = 512  # of a sequence, BERT's longest
# Sides and channels of the 3 x 3 convolutions of ResNet-50's stages; their blocks have four times the channels.
STAGES = ((56, 64), (28, 128), (14, 256), (7, 512))


def _convolution(
    batch: int, size: int, channels: int, filters: int, window: int, stride: int = 1
) -> Arguments:
    image, weights = (batch, size, size, channels), (window, window, channels, filters)
    tensors = {
        "input": values(image),
        "filter": values(weights),
        "out_backprop": values((batch, size // stride, size // stride, filters)),
    }
    sizes = {"input_sizes": list(image), "filter_sizes": list(weights)}
    return tensors | sizes | {"strides": [1, stride, stride, 1], "padding": "SAME"}


def _norm(batch: int, size: int, channels: int) -> Arguments:
    x, ones = values((batch, size, size, channels)), np.ones(channels, np.float32)
    given = {"x": x, "y_backprop": x, "scale": ones, "offset": ones}
    given |= {f"reserve_space_{i}": ones for i in (1, 2)} | {"reserve_space_3": ones[:0]}
    return given | {"mean": ones[:0], "variance": ones[:0]}


def _pool(batch: int) -> Arguments:
    window = {"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    return window | {"input": values((batch, 112, 112, 64))}


def layers(
    batch: int = BATCH, cell_batch: int = CELL_BATCH
) -> Iterator[tuple[str, str, Callable[[], Arguments]]]:
    """For each row the layer, the op and the function that makes its arguments."""
    convolutions = ("Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter")
    norms = ("FusedBatchNormV3", "FusedBatchNormGradV3")
    for op in convolutions[::2]:  # the gradient of an image is not needed
        yield "ResNet-50, 7 x 7 / 2 of 3", op, lambda: _convolution(batch, 224, 3, 64, 7, 2)
    yield "ResNet-50, 3 x 3 / 2", "MaxPool", lambda: _pool(batch)
    for size, channels in STAGES:
        wide = 4 * channels
        for op in convolutions:
            yield (
                f"ResNet-50, 3 x 3 of {channels}",
                op,
                lambda s=size, c=channels: _convolution(batch, s, c, c, 3),
            )
        for op in convolutions:
            yield (
                f"ResNet-50, 1 x 1 of {wide}",
                op,
                lambda s=size, c=channels, w=wide: _convolution(batch, s, w, c, 1),
            )
        for op in norms:
            yield f"ResNet-50, norm of {wide}", op, lambda s=size, w=wide: _norm(batch, s, w)
    for name, terms, columns in (("BERT-base, in", 768, 3072), ("BERT-base, out", 3072, 768)):
        yield (
            name,
            "MatMul",
            lambda k=terms, n=columns: {"a": values((TOKENS, k)), "b": values((k, n))},
        )
    heads = (12, TOKENS, TOKENS)
    yield (
        "BERT-base, attention",
        "BatchMatMulV2",
        lambda: {"x": values((12, TOKENS, 64)), "y": values((12, 64, TOKENS))},
    )
    yield "BERT-base, attention", "Softmax", lambda: {"logits": values(heads)}
    yield "BERT-base, GELU", "Erf", lambda: {"x": values((TOKENS, 3072))}
    yield "BERT-base, norm", "Mean", lambda: {"input": values((TOKENS, 768)), "axis": [1]}
    for op in ("LSTMBlockCell", "LSTMBlockCellGrad", "GRUBlockCell", "GRUBlockCellGrad"):
        yield f"{op[: op.index('B')]}-512, a step", op, lambda: recurrent(cell_batch, 512)
    for op in ("BlockLSTMV2", "BlockLSTMGradV2"):
        yield "LSTM-512, 16 steps", op, lambda: recurrent(cell_batch, 512, 16)
