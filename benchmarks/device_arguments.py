"""The arguments with which benchmarks.device_ops calls ops. One that RULES does not name gets tensors of one shape
for all inputs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

SIDE = 1024  # of the square that most tensors are
# Among several types that an op has kernels for, the first of these.
TYPES = ("float32", "int64", "int32", "bool", "uint8", "complex64")

Arguments = dict[str, Any]

# Floats in (0, 1), in which every function is defined but Acosh's; whole numbers from 1, which divide.
_random = np.random.default_rng(0)
_BEGIN = _random.bit_generator.state


def begin_anew() -> None:
    """The numbers that follow are those of a new process."""
    _random.bit_generator.state = _BEGIN


def values(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    if dtype.startswith(("float", "bfloat", "complex")):
        return _random.uniform(0.1, 0.9, shape).astype(dtype)
    return _random.integers(0 if dtype == "bool" else 1, 2 if dtype == "bool" else 8, shape).astype(
        dtype
    )


def _image(n: int) -> tuple[int, ...]:  # [8, 56, 56, 64] where n is SIDE
    return max(n // 128, 1), max(n // 18 // 4 * 4, 4), max(n // 18 // 4 * 4, 4), max(n // 16, 8)


def _convolution(n: int, depthwise: bool = False) -> Arguments:
    image = _image(n)
    window = (3, 3, image[3], 1 if depthwise else image[3])
    attributes = {"strides": [1, 1, 1, 1], "padding": "SAME"}
    return {
        "input": values(image),
        "filter": values(window),
        "out_backprop": values(image),
        "input_sizes": list(image),
        "filter_sizes": list(window),
    } | attributes


def _pool(n: int) -> Arguments:
    image = _image(n)
    small = (image[0], image[1] // 2, image[2] // 2, image[3])
    x = values(image)
    largest = x.reshape(small[0], small[1], 2, small[2], 2, small[3]).max((2, 4))
    tensors = {
        "value": x,
        "input": x,
        "orig_input": x,
        "orig_output": largest,
        "grad": values(small),
    }
    window = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
    return tensors | window | {"orig_input_shape": list(image)}


def _batch_norm(n: int, gradient: bool = False) -> Arguments:
    x, channel = values(_image(n)), np.ones(_image(n)[3], np.float32)
    if not gradient:
        nothing = channel[:0]
        return {"x": x, "scale": channel, "offset": channel, "mean": nothing, "variance": nothing}
    reserved = {f"reserve_space_{i}": channel for i in (1, 2)} | {"reserve_space_3": channel[:0]}
    return {"y_backprop": values(_image(n)), "x": x, "scale": channel} | reserved


def _bias(n: int) -> Arguments:
    image = values(_image(n))
    return {"value": image, "out_backprop": image, "bias": values(_image(n)[3:])}


def _blocks(n: int) -> Arguments:
    nothing = [[0, 0], [0, 0]]
    block = {"block_size": 2, "block_shape": [2, 2], "paddings": nothing, "crops": nothing}
    return {"input": values((4, *_image(n)[1:]))} | block


def _diagonal(n: int) -> Arguments:
    sizes = {"k": 0, "num_rows": n, "num_cols": n, "padding_value": np.float32(0)}
    return {"diagonal": values((n,))} | sizes


def _stripes(n: int) -> Arguments:
    return {"shape": [n, n], "begin": [0, 1], "end": [n, n - 1], "strides": [1, 1]}


def _step(n: int) -> Arguments:
    names = "alpha beta beta1 beta1_power beta2 beta2_power epsilon l1 l2 l2_shrinkage logbase lr"
    halves = dict.fromkeys(f"{names} momentum rho sign_decay".split(), np.float32(0.5))
    rows = {"indices": _random.integers(0, n, n), "global_step": np.int64(3)}
    return halves | {"lr_power": np.float32(-0.5)} | rows


def _nd(n: int) -> Arguments:
    rows = _random.integers(0, n, (n, 1))
    square = values((n, n))
    tensors = {
        "indices": rows,
        "updates": square,
        "params": square,
        "tensor": square,
        "input": square,
    }
    return tensors | {"ref": square, "shape": [n, n], "dtype": tf.float32}


def _rows(n: int) -> Arguments:
    return {"indices": _random.integers(0, n, n), "axis": 0, "dtype": tf.float32}


def _seeded(n: int) -> Arguments:
    host = {"shape": [n, n], "seed": [1, 2], "key": [1], "counter": [1, 2], "alg": 1}
    return host | {"minval": np.int32(0), "maxval": np.int32(9), "dtype": tf.float32}


def _distributed(n: int, stateless: bool = False) -> Arguments:
    half = np.float32(0.5)
    bounds = {"means": half, "stdevs": half, "stddevs": half, "minvals": -half, "maxvals": 2 * half}
    rates = {"alpha": 6 * half, "rate": 40 * half, "lam": 40 * half}
    return _seeded(n) | bounds | rates | ({} if stateless else {"seed": 1})


def _whole(n: int) -> Arguments:
    return _seeded(n) | {"dtype": tf.int32}


def _sorted(n: int) -> Arguments:
    rows = {"sorted_inputs": np.sort(values((8, n))), "values": values((8, n * n // 8))}
    return rows | {"boundaries": [i / 100 for i in range(100)]}


def _top(n: int) -> Arguments:
    targets = _random.integers(0, n, n).astype(np.int32)
    return {"k": np.int32(min(n, 10)), "targets": targets}


def _counted(n: int) -> Arguments:
    index = _random.integers(0, n, n * n).astype(np.int32)
    return {"arr": index, "input": index, "size": np.int32(n), "weights": values((n * n,))}


def _histogram(n: int) -> Arguments:
    limits = np.array([0, 1], np.float32)
    return {"values": values((n * n,)), "value_range": limits, "nbins": np.int32(100)}


def _segments(n: int) -> Arguments:
    ids, rows = np.sort(_random.integers(0, n // 8, n)), _random.integers(0, n, n)
    return {"segment_ids": ids, "indices": rows, "num_segments": n // 8, "output_dim0": np.int32(n)}


def _generator(n: int) -> Arguments:
    state = {"variable": np.arange(3), "alg": np.int32(1), "algorithm": np.int64(1)}
    limits = {"minval": np.int32(0), "maxval": np.int32(9)}
    return state | limits | {"delta": np.uint64(9), "shape": np.array([n, n])}


def _partitions(n: int) -> Arguments:
    parts = _random.integers(0, 8, n).astype(np.int32)
    halves = np.split(_random.permutation(n).astype(np.int32), 2)
    stitched = {"indices": halves, "data": [values((n // 2, n))] * 2}
    return {"partitions": parts, "num_partitions": 8, "stitched": stitched}


def _picture(n: int) -> Arguments:  # ops that change an image's size get half of it
    n_images, height, width, channels = _image(n)
    half = (n_images, height // 2, width // 2, channels)
    boxes = np.tile(np.array([0.1, 0.1, 0.8, 0.9], np.float32), (8, 1))
    crops = {"boxes": boxes, "box_ind": (np.arange(8) % n_images).astype(np.int32), "T": tf.float32}
    crops |= {"crop_size": list(half[1:3]), "image_size": np.array(_image(n), np.int32)}
    # x and y of each pixel, turned a little
    turn = np.array([[1, 0.1, 2, -0.1, 1, 3, 0, 0]], np.float32)
    turned = {"transforms": turn, "output_shape": [height, width], "fill_value": np.float32(0)}
    tensors = {
        name: values(_image(n))
        for name in ("image", "input", "input_grads", "input_image", "output_image")
    }
    return tensors | crops | turned | {"images": values(_image(n)), "interpolation": "BILINEAR"}


def _crops(n: int) -> Arguments:
    given = _picture(n)
    return given | {"grads": values((8, *given["crop_size"], _image(n)[3]))}


def _resized(n: int) -> Arguments:
    n_images, height, width, channels = _image(n)
    half = values((n_images, height // 2, width // 2, channels))
    return {
        "images": half,
        "original_image": half,
        "grads": values(_image(n)),
        "size": [height, width],
    }


def _colours(n: int) -> Arguments:
    strength = np.float32(0.5)
    images = values((8, n // 8, n // 3, 3))
    return {"images": images, "delta": strength, "scale": strength, "contrast_factor": strength}


def _patches(n: int) -> Arguments:
    window = {"ksizes": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "rates": [1, 1, 1, 1]}
    return {"images": values(_image(n)), "padding": "SAME"} | window


def _dilation(n: int) -> Arguments:
    image = values(_image(n))
    ones = {"strides": [1] * 4, "rates": [1] * 4, "padding": "SAME"}
    return {"input": image, "filter": values((3, 3, _image(n)[3])), "out_backprop": image} | ones


def _places(
    n: int, second: bool = False
) -> Arguments:  # each window's first element is the largest
    given = _pool(n)
    index = np.arange(given["input"][0].size).reshape(given["input"].shape[1:])[::2, ::2]
    places = np.broadcast_to(index, given["grad"].shape).astype(np.int64)
    return given | {"argmax": places} | ({"grad": given["input"]} if second else {})


def _volume(n: int) -> tuple[int, ...]:  # [2, 16, 32, 32, 32] where n is SIDE
    return 2, max(n // 64, 4), max(n // 32, 4), max(n // 32, 4), max(n // 32, 4)


def _convolution_of_volumes(n: int) -> Arguments:
    volume = _volume(n)
    window = (3, 3, 3, volume[4], volume[4])
    tensors = {"input": values(volume), "filter": values(window), "out_backprop": values(volume)}
    sizes = {"input_sizes": list(volume), "filter_sizes": list(window)}
    return tensors | sizes | {"strides": [1] * 5, "padding": "SAME"}


def _pool_of_volumes(n: int, second: bool = False) -> Arguments:
    x, sizes = values(_volume(n)), _volume(n)
    a, b, c = (size // 2 for size in sizes[1:4])
    largest = x.reshape(sizes[0], a, 2, b, 2, c, 2, sizes[4]).max((2, 4, 6))
    tensors = {"input": x, "orig_input": x, "orig_output": largest, "orig_input_shape": list(sizes)}
    twos = [1, 2, 2, 2, 1]
    window = {"ksize": twos, "ksizes": twos, "strides": twos, "padding": "SAME"}
    return tensors | window | {"grad": x if second else values(largest.shape)}


def _spectrum(n: int, dims: int = 1, inverse: bool = False) -> Arguments:
    length = [8, n, n // 8][-dims:] if dims == 3 else [n] * dims
    shape = [*([n] * (2 - dims)), *length]
    if inverse:
        shape[-1] = shape[-1] // 2 + 1
    dtype = "complex64" if inverse else "float32"
    return {"input": values(tuple(shape), dtype), "fft_length": length}


def _quantized(n: int, channels: bool = False) -> Arguments:
    low, high = (np.full(n, x, np.float32) if channels else np.float32(x) for x in (0, 1))
    return {"min": low, "max": high}


def _dequantized(n: int) -> Arguments:
    ends = {"min_range": np.float32(0), "max_range": np.float32(1)}
    return ends | {"input": values((n, n), "int8").astype(tf.qint8.as_numpy_dtype), "T": tf.qint8}


def recurrent(rows: int, cells: int, steps: int = 0) -> Arguments:  # as many inputs as cells
    state = (rows, cells)
    whole = (steps, *state) if steps else state
    names = ("x", "i", "f", "o", "ci", "co", "cs", "h", "r", "u", "c", "d_h", "cs_grad", "h_grad")
    tensors = {name: values(whole) for name in names} | {
        "cs_prev": values(state),
        "h_prev": values(state),
    }
    sums = 2 * cells
    weights = {
        "w": (sums, 4 * cells),
        "w_ru": (sums, sums),
        "w_c": (sums, cells),
        "b_ru": (sums,),
        "b_c": (cells,),
    }
    weights |= {"b": (4 * cells,), "wci": (cells,), "wcf": (cells,), "wco": (cells,)}
    tensors |= {name: values(shape) for name, shape in weights.items()}
    return tensors | {"seq_len_max": np.int64(steps), "use_peephole": False}


def layer(batch: int, inputs: int, cells: int, steps: int) -> Arguments:
    x, h, out = (
        values((steps, batch, inputs)),
        values((1, batch, cells)),
        values((steps, batch, cells)),
    )
    tensors = {
        name: h
        for name in (
            "input_h",
            "input_c",
            "output_h",
            "output_c",
            "output_h_backprop",
            "output_c_backprop",
        )
    }
    tensors |= {
        "input": x,
        "output": out,
        "output_backprop": out,
        "reserve_space": values((6 * out.size,)),
    }
    given = {
        "sequence_lengths": np.full(batch, steps, np.int32),
        "host_reserved": np.zeros(0, np.int8),
    }
    return tensors | given | {"params": values((4 * cells * (inputs + cells + 2),))}


def _fractional(n: int) -> Arguments:
    image, pooled = values((1, n // 2, n // 2, 4)), values((1, n // 4, n // 4, 4))
    pools = {
        "value": image,
        "pooling_ratio": [1.0, 1.5, 1.5, 1.0],
        "orig_input": image,
        "orig_output": pooled,
    }
    places = np.arange(0, n // 2 + 1, 2)  # TensorFlow's cases: windows of two, and their largest
    pooled[:] = image.reshape(1, n // 4, 2, n // 4, 2, 4).max((2, 4))
    return pools | {
        "out_backprop": pooled,
        "row_pooling_sequence": places,
        "col_pooling_sequence": places,
    }


def _sequences(n: int) -> Arguments:  # of speech: times, sequences, letters
    times, batch, letters = n // 4, max(n // 32, 1), max(n // 16, 4)
    places = np.array([(b, i) for b in range(batch) for i in range(max(times // 8, 1))])
    labels = _random.integers(1, letters - 1, len(places)).astype(np.int32)
    given = {"labels_indices": places, "labels_values": labels}
    return given | {
        "inputs": values((times, batch, letters)),
        "sequence_length": np.full(batch, times, np.int32),
    }


def _boxes(n: int) -> Arguments:
    corners = values((n, 2))
    limits = {"max_output_size": np.int32(n // 8), "iou_threshold": np.float32(0.5)}
    scored = {"boxes": np.concatenate([corners, corners + 0.2], 1), "scores": values((n,))}
    return scored | limits | {"score_threshold": np.float32(0)}


# Whatever an op has of these inputs and attributes it gets; the first pattern that matches counts. Inputs that no
# pattern names, tensors or variables, are squares.
RULES: tuple[tuple[str, Callable[[int], Arguments]], ...] = (
    ("ResizeNearestNeighborGrad", lambda n: _resized(n) | {"size": [size // 2 for size in _image(n)[1:3]]}),
    ("Resize(Bilinear|NearestNeighbor).*", _resized),
    ("CropAndResize.*", _crops),
    ("ImageProjectiveTransform.*|LRN(Grad)?", _picture),
    ("RGBToHSV|HSVToRGB|Adjust(Hue|Saturation|Contrastv2)", _colours),
    ("ExtractImagePatches", _patches),
    ("ExtractVolumePatches|(Max|Avg)Pool3D(Grad)?", _pool_of_volumes),
    ("MaxPool3DGradGrad", functools.partial(_pool_of_volumes, second=True)),
    ("MaxPoolGradGrad.*", functools.partial(_places, second=True)),
    ("MaxPoolGradWithArgmax", _places),
    ("Dilation2D.*", _dilation),
    ("Conv3D.*", _convolution_of_volumes),
    ("I?FFT3D", lambda n: {"input": values((8, n, n // 8), "complex64")}),
    ("RFFT", _spectrum),
    ("RFFT2D", functools.partial(_spectrum, dims=2)),
    ("RFFT3D", functools.partial(_spectrum, dims=3)),
    ("IRFFT", functools.partial(_spectrum, inverse=True)),
    ("IRFFT2D", functools.partial(_spectrum, dims=2, inverse=True)),
    ("IRFFT3D", functools.partial(_spectrum, dims=3, inverse=True)),
    ("FakeQuantWithMinMaxVars(Gradient)?", _quantized),
    ("FakeQuantWithMinMaxVarsPerChannel.*", functools.partial(_quantized, channels=True)),
    ("BlockLSTM.*", lambda n: recurrent(n // 8, n // 4, steps=4)),
    ("(LSTM|GRU)BlockCell.*", lambda n: recurrent(n // 8, n // 4)),
    ("CudnnRNN.*V3", lambda n: layer(n // 8, n // 4, n // 4, steps=4)),
    ("Einsum", lambda n: {"inputs": [values((n, n))] * 2, "equation": "ij,kj->ik"}),
    ("(LowerBound|UpperBound|Bucketize)", _sorted),
    ("(TopKV2|ApproxTopK|InTopK.*)", _top),
    ("(Dense)?Bincount", _counted),
    ("RaggedBincount", lambda n: _counted(n) | {
        "values": _random.integers(0, n, n * n).astype(np.int32), "splits": np.arange(0, n * n + 1, n)
    }),
    ("HistogramFixedWidth", _histogram),
    ("SegmentProd", lambda n: {"segment_ids": np.sort(_random.integers(0, n, n))}),
    ("(Sparse)?Segment.*", _segments),
    ("RngSkip", lambda n: _generator(n) | {"delta": np.int64(9)}),
    ("RngReadAndSkip", _generator),
    ("StatefulUniformFullInt", lambda n: _generator(n) | {"dtype": tf.int64}),
    ("Stateful.*", lambda n: _generator(n) | {"dtype": tf.float32}),
    ("Inplace.*", lambda n: {"i": np.arange(n, dtype=np.int32)}),
    ("ResourceCountUpTo", lambda _: {"variable": np.int64(0), "limit": 1 << 62, "T": tf.int64}),
    ("Zeta", lambda n: {"x": values((n, n)) + 1}),
    ("Polygamma", lambda n: {"a": np.ones((n, n), np.float32)}),
    ("DynamicPartition", _partitions),
    ("(Parallel)?DynamicStitch", lambda n: _partitions(n)["stitched"]),
    ("ReverseSequence", lambda n: {"seq_lengths": np.arange(n), "seq_dim": 1, "batch_dim": 0}),
    ("MirrorPadGrad", lambda _: {"paddings": [[1, 1], [2, 2]], "mode": "REFLECT"}),
    ("Cross", lambda n: {"a": values((n * n // 3, 3)), "b": values((n * n // 3, 3))}),
    ("CheckNumerics.*", lambda _: {"message": ""}),
    ("UnravelIndex", lambda n: {"indices": np.arange(n * n), "dims": np.array([n, n])}),
    ("Bitcast", lambda _: {"type": tf.int32}),
    ("Diag", lambda n: {"diagonal": values((n,))}),
    ("BatchMatMulV3", lambda _: {"Tout": tf.float32}),
    ("CTCLoss(V2)?", _sequences),
    ("Unique.*", lambda n: {"x": _random.integers(0, n, n * n), "axis": np.zeros(0, np.int64)}),
    ("SparseTensorDenseMatMul", lambda n: {
        "a_indices": _random.integers(0, n, (8 * n, 2)), "a_values": values((8 * n,)), "a_shape": np.array([n, n])
    }),
    ("NonMaxSuppressionV.", _boxes),
    ("QuantizeV2", lambda _: {"min_range": np.float32(0), "max_range": np.float32(1), "T": tf.qint8}),
    ("Dequantize", _dequantized),
    ("QuantizeAndDequantizeV.*", lambda _: {
        "input_min": np.float32(0.2), "input_max": np.float32(0.7), "num_bits": np.int32(8)
    }),
    ("Multinomial", lambda n: {"num_samples": np.int32(n)}),
    ("StatelessMultinomial", lambda n: {"num_samples": np.int32(n), "seed": [1, 2]}),
    ("Cholesky", lambda n: {"input": (values((n, n)) + n * np.eye(n)).astype(np.float32)}),
    ("Acosh", lambda n: {"x": values((n, n)) + 1}),
    ("Conv(2D.*)?", _convolution),
    ("DepthwiseConv2d.*", functools.partial(_convolution, depthwise=True)),
    ("FractionalMaxPool(Grad)?", _fractional),
    ("(Max|Avg)Pool.*", _pool),
    ("FusedBatchNormGrad.*", functools.partial(_batch_norm, gradient=True)),
    ("FusedBatchNorm.*", _batch_norm),
    ("BiasAdd(Grad|V1)?", _bias),
    ("Sparse.*Logits", lambda n: {"labels": np.arange(n)}),
    ("((Resource)?GatherNd|ScatterNd.*|TensorScatter.*|ResourceScatterNd.*)", _nd),
    ("UnsortedSegment.*", lambda n: {"segment_ids": _random.integers(0, n, n), "num_segments": n}),
    ("Gather|GatherV2|Resource(Gather|Scatter).*", _rows),
    ("Arg(Max|Min)", lambda _: {"dimension": 1}),
    ("Cum.*", lambda _: {"axis": 1}),
    ("(Sum|Mean|Prod|Max|Min|All|Any|EuclideanNorm)", lambda _: {"axis": [1]}),
    ("Concat|ConcatV2", lambda n: {"values": [values((n, n // 2))] * 2, "axis": 1, "concat_dim": 1}),
    ("AddN|Pack", lambda n: {"inputs": [values((n, n))] * 2, "values": [values((n, n))] * 2}),
    ("Split", lambda _: {"axis": 1, "num_split": 4}),
    ("SplitV", lambda n: {"axis": 1, "num_split": 2, "size_splits": [n // 4, n - n // 4]}),
    ("Unpack", lambda n: {"value": values((8, n, n // 8)), "num": 8}),
    ("ReverseV2", lambda _: {"axis": [1]}),
    ("Reverse", lambda _: {"dims": [False, True]}),
    ("Roll", lambda _: {"shift": [3], "axis": [1]}),
    ("MirrorPad", lambda _: {"paddings": [[1, 1], [2, 2]], "mode": "REFLECT"}),
    ("Pad(V2)?", lambda _: {"paddings": [[1, 1], [2, 2]], "constant_values": np.float32(0)}),
    ("SpaceTo(Batch|Depth).*|(Batch|Depth)ToSpace.*", _blocks),
    ("MatrixBandPart", lambda _: {"num_lower": -1, "num_upper": 0}),
    ("MatrixDiagPart(V2|V3)", lambda _: {"k": 0, "padding_value": np.float32(0)}),
    ("MatrixDiag(V2|V3)?", _diagonal),
    ("MatrixSetDiag.*", lambda n: {"diagonal": values((n,)), "k": 0}),
    ("OneHot", lambda n: {"indices": np.arange(n), "depth": n, "on_value": np.float32(1), "off_value": np.float32(0)}),
    ("Range", lambda n: {"start": np.float32(0), "limit": np.float32(n * n), "delta": np.float32(1)}),
    ("BroadcastTo", lambda n: {"input": values((n,)), "shape": [n, n]}),
    ("Fill|Empty", lambda n: {"dims": [n, n], "value": np.float32(1), "shape": [n, n], "dtype": tf.float32}),
    ("Slice", lambda n: {"begin": [0, 1], "size": [n, n - 2]}),
    ("StridedSlice", _stripes),
    ("StridedSliceGrad", lambda n: _stripes(n) | {"dy": values((n, n - 2))}),
    (".*StridedSlice(Assign|Update)", lambda n: _stripes(n) | {"value": values((n, n - 2))}),
    ("Tile", lambda n: {"input": values((n, n // 4)), "multiples": [1, 4]}),
    ("(Conjugate)?Transpose", lambda _: {"perm": [1, 0]}),
    ("Cast", lambda n: {"x": 8 * values((n, n)), "DstT": tf.float16}),
    ("ClipByValue", lambda _: {"clip_value_min": np.float32(0.2), "clip_value_max": np.float32(0.6)}),
    ("Resource(Sparse)?Apply.*", _step),
    ("Stateless.*(FullInt).*", lambda n: _seeded(n) | {"dtype": tf.int64}),
    ("StatelessRandomUniformInt.*", _whole),
    ("RandomGamma|RandomPoissonV2|ParameterizedTruncatedNormal", _distributed),
    ("Stateless(RandomGamma.*|RandomPoisson|ParameterizedTruncatedNormal)", functools.partial(
        _distributed, stateless=True
    )),
    ("(Random|Truncated).*", lambda n: _whole(n) | {"seed": 1, "dtype": tf.float32}),
    ("StatelessRandomGet.*", _seeded),
    ("Stateless(Random|Truncated).*", _seeded),
)  # fmt: skip


# Names in tf.raw_ops that differ from the registry's.
RENAMED = {
    ("", "reduction_indices"): "axis",
    ("", "split_dim"): "axis",
    ("Select", "t"): "x",
    ("Select", "e"): "y",
    ("Where", "input"): "condition",
}


def argument_name(op: str, name: str) -> str:
    """The name in tf.raw_ops of an argument that the op's definition and its kernels call `name`."""
    return RENAMED.get((op, name)) or RENAMED.get(("", name), name)


def as_dtype(value: Any, dtype: str) -> np.ndarray:
    """Numbers of a rule in another dtype; fractions become whole numbers, unless they stay fractions."""
    x = np.asarray(value)
    if x.dtype.kind == "f" and np.any(x % 1):
        if dtype == "bool":
            return x > 0.5
        if "int" in dtype:
            x = np.ceil(8 * x)
    return x.astype(tf.as_dtype(dtype).as_numpy_dtype)


@functools.cache
def rule_of(op: str) -> Callable[[int], Arguments] | None:
    return next((rule for pattern, rule in RULES if re.fullmatch(pattern, op)), None)


def arguments(
    op: str, types: dict[str, str], side: int = SIDE, given: Arguments | None = None
) -> Arguments:
    """The arguments of the op, its type attributes being `types`: arrays are tensors, functions make variables.

    `given` are the inputs and attributes in place of those that a rule makes.
    """
    definition = op_def_registry.get(op)
    if given is None:
        rule = rule_of(op)
        given = rule(side) if rule else {}
    found: Arguments = {}
    inferred = {argument.type_attr for argument in definition.input_arg}
    for argument in definition.input_arg:
        name = argument_name(op, argument.name)
        dtype = types.get(argument.type_attr) or tf.as_dtype(argument.type).name
        if dtype == "resource":
            start = given.get("variable")
            found[name] = functools.partial(
                tf.Variable, values((side, side)) if start is None else start
            )
        elif name in given:
            value = given[name]
            floats = isinstance(value, np.ndarray) and value.dtype == np.float32
            found[name] = as_dtype(value, dtype) if floats and argument.type_attr else value
        else:
            found[name] = values((side, side), dtype)
    attributes = {attr.name for attr in definition.attr} - inferred
    return found | {name: given[name] for name in attributes & given.keys()}


def chosen_types(op: str, kernel_list: list[Any]) -> dict[str, str]:
    """For each type attribute the type to measure."""
    found = {}
    for attr in op_def_registry.get(op).attr:
        if attr.type != "type":
            continue
        allowed = {tf.as_dtype(t).name for t in attr.allowed_values.list.type} or set(TYPES)
        registered = [
            {tf.as_dtype(t).name for t in constraint.allowed_values.list.type}
            for kernel in kernel_list
            for constraint in kernel.constraint
            if constraint.name == attr.name
        ]
        both = allowed & set().union(*registered) if registered else allowed
        found[attr.name] = next((t for t in TYPES if t in both), "float32")
    return found


def placed(given: Arguments, device: str, host: set[str], keep: list[Any]) -> Arguments:
    """The arguments as tensors on a device; those that a kernel reads in host memory are the CPU's."""

    def put(name: str, value: Any) -> Any:
        if callable(value):
            with tf.device(device):
                keep.append(value())
            return keep[-1].handle
        if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
            return [put(name, part) for part in value]
        if not isinstance(value, np.ndarray | np.generic):
            return value
        quantized = value.dtype.names is not None  # which GPUs have no constants of
        with tf.device("CPU:0" if name in host or quantized else device):
            return tf.identity(tf.constant(value))

    return {name: put(name, value) for name, value in given.items()}


def with_host_arrays(given: Arguments, op: str, types: dict[str, str], host: set[str]) -> Arguments:
    """The arguments, of which numbers that a kernel reads in host memory are arrays: TensorFlow would put
    them on the device, from where each call would fetch them."""
    made = dict(given)
    for argument in op_def_registry.get(op).input_arg:
        name = argument_name(op, argument.name)
        value = given.get(name)
        if argument.name not in host or not isinstance(value, bool | int | float | list):
            continue
        dtype = types.get(argument.type_attr) or tf.as_dtype(argument.type).name
        if not (isinstance(value, list) and value and isinstance(value[0], np.ndarray)):
            made[name] = np.array(value, dtype)
    return made
