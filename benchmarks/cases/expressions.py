"""The expressions that the fusion pass finds beside convolutions with epilogues: norms, gates, attention, padding,
mish, rotary positions, and gradients of these, of gates, biases and batch norms, with the pass on and off, on the CPU
and on the Metal device.

Times are the processor's, of all threads.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks import peers
from benchmarks.registry import Case, Contender, Context, register

CALLS = 4
# Graph of benchmarks/expression_worker.py: its name, shapes of its inputs.
GRAPHS: dict[str, tuple[str, tuple[tuple[int, ...], ...]]] = {
    "layer_norm": ("layer norm of 4096 x 512", ((4096, 512), (512,), (512,))),
    "rms_norm": ("RMS norm of 4096 x 512", ((4096, 512), (512,))),
    "swiglu": ("silu(gate) up of two tensors of 512 x 2048", ((512, 2048), (512, 2048))),
    "swiglu_of_halves": ("silu(gate) up of the halves of 512 x 4096", ((512, 4096),)),
    "attention": ("attention, 8 heads of 512 x 64", ((1, 8, 512, 64),) * 3),
    "pad_conv": ("Pad, Conv2D 3x3, Relu of 4 x 56 x 56 x 64", ((4, 56, 56, 64), (3, 3, 64, 64))),
    "bias_grad": ("ReluGrad and BiasAddGrad of 4096 x 1024", ((4096, 1024),) * 2),
    "bias_grad_nchw": (
        "ReluGrad and BiasAddGrad of 8 x 64 x 56 x 56, channels second",
        ((8, 64, 56, 56),) * 2,
    ),
    "gelu_grad": ("gradients of GELU by tanh and of a bias of 4096 x 1024", ((4096, 1024),) * 2),
    "gelu_exact_grad": (
        "gradients of GELU by erf and of a bias of 4096 x 1024",
        ((4096, 1024),) * 2,
    ),
    "silu_grad": ("gradients of silu and of a bias of 4096 x 1024", ((4096, 1024),) * 2),
    "swiglu_grad": ("both gradients of silu(gate) up, of 512 x 2048", ((512, 2048),) * 3),
    "batch_norm_grad": (
        "ReluGrad and FusedBatchNormGradV3 of 8 x 56 x 56 x 64",
        ((8, 56, 56, 64),) * 3 + ((64,),),
    ),
    "rope": (
        "rotary positions of 4 x 512 x 8 x 64 by tables",
        ((4, 512, 8, 64), (1, 512, 1, 64), (1, 512, 1, 64)),
    ),
    "rope_grad": (
        "the gradient of rotary positions of 4 x 512 x 8 x 64 by tables",
        ((4, 512, 8, 64), (4, 512, 8, 64), (1, 512, 1, 64), (1, 512, 1, 64)),
    ),
    "mish": ("mish of a product of 1024 x 256 x 1024", ((1024, 256), (256, 1024))),
}


def contenders(
    graph: str, shapes: tuple[tuple[int, ...], ...], place: str, context: Context
) -> list[Contender]:
    random = np.random.default_rng(0)
    arrays = {
        f"a{i}": random.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))
        for i, shape in enumerate(shapes)
    }
    # Attention stays as it is on the device: the pass refuses it there.
    settings = {"graph": graph, "calls": CALLS, "fuses": (graph, place) != ("attention", "device")}
    worker = peers.start(
        context.stack, place, arrays, settings, "expression_worker.py", Path(sys.executable)
    )
    return [
        worker.contender("fusion on", "on", worker.version),
        worker.contender("fusion off", "off", worker.version),
    ]


for _graph, (_title, _shapes) in GRAPHS.items():
    for _place, _where in (("cpu", "the CPU"), ("device", "the Metal device")):
        register(
            Case(
                group="expressions",
                name=f"expressions-{_graph}-{_place}",
                title=f"{_title}, on {_where}, {CALLS} calls in a row, processor time",
                contenders=partial(contenders, _graph, _shapes, _place),
                in_quick=False,
            )
        )
