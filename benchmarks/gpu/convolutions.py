"""Convolutions of ResNet-50 and their gradients on a GPU, milliseconds a call.

python benchmarks/gpu/convolutions.py ours    # TensorFlow on the METAL device, HOSTMETAL_DEVICE=cuda:0
python benchmarks/gpu/convolutions.py torch   # PyTorch, channels last, no TF32

So many calls in one command stream that their launches are hidden, and the wall clock; medians of 7.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

# Images, height and width, channels, filters, window, stride.
LAYERS = [
    (32, 56, 64, 64, 3, 1),
    (32, 28, 128, 128, 3, 1),
    (32, 14, 256, 256, 3, 1),
    (32, 7, 512, 512, 3, 1),
    (32, 56, 256, 512, 1, 2),
    (32, 56, 128, 128, 3, 2),
]
DTYPES = ("float32", "float16")
CALLS = 20


def median(run: Callable[[], None], wait: Callable[[], None]) -> float:
    times = []
    for i in range(9):
        wait()
        began = time.perf_counter()
        for _ in range(CALLS):
            run()
        wait()
        if i >= 2:
            times.append((time.perf_counter() - began) / CALLS)
    return 1e3 * statistics.median(times)


def ours(n: int, size: int, channels: int, filters: int, window: int, stride: int, dtype: str):
    import tensorflow as tf

    import metal_ops.device

    metal_ops.device.load()
    with tf.device("GPU:0"):
        x = tf.cast(tf.random.normal((n, size, size, channels)), dtype)
        w = tf.cast(tf.random.normal((window, window, channels, filters)), dtype)
        d = tf.cast(tf.random.normal((n, -(-size // stride), -(-size // stride), filters)), dtype)
        given = dict(strides=[1, stride, stride, 1], padding="SAME")
        raw = tf.raw_ops
        runs = [
            lambda: raw.Conv2D(input=x, filter=w, **given),
            lambda: raw.Conv2DBackpropInput(input_sizes=x.shape, filter=w, out_backprop=d, **given),
            lambda: raw.Conv2DBackpropFilter(
                input=x, filter_sizes=w.shape, out_backprop=d, **given
            ),
        ]
        return [median(run, metal_ops.device.synchronize) for run in runs]


def torchs(n: int, size: int, channels: int, filters: int, window: int, stride: int, dtype: str):
    import torch

    kind = getattr(torch, dtype)
    like = dict(device="cuda", dtype=kind)
    x = torch.randn((n, channels, size, size), **like).to(memory_format=torch.channels_last)
    w = torch.randn((filters, channels, window, window), **like)
    w = w.to(memory_format=torch.channels_last)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    out = -(-size // stride)
    d = torch.randn((n, filters, out, out), **like).to(memory_format=torch.channels_last)
    pad = window // 2
    grad = torch.nn.grad
    runs = [
        lambda: torch.nn.functional.conv2d(x, w, stride=stride, padding=pad),
        lambda: grad.conv2d_input(x.shape, w, d, stride=stride, padding=pad),
        lambda: grad.conv2d_weight(x, w.shape, d, stride=stride, padding=pad),
    ]
    return [median(run, torch.cuda.synchronize) for run in runs]


def main() -> None:
    measure = {"ours": ours, "torch": torchs}[sys.argv[1]]
    for dtype in DTYPES:
        for layer in LAYERS:
            forward, of_input, of_filter = measure(*layer, dtype)
            print(
                f"{dtype} {layer}: {forward:.3f} forward, {of_input:.3f} input's gradient, "
                f"{of_filter:.3f} filter's",
                flush=True,
            )


if __name__ == "__main__":
    main()
