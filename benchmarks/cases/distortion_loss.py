"""distortion_loss against running sums out of stock ops, and against the double sum of the paper's own code."""

from __future__ import annotations

from functools import partial

import numpy as np

import metal_ops
from benchmarks import elementwise
from benchmarks.cases.volume_render import RAYS, SAMPLES, N, dense_samples
from benchmarks.registry import Case, register


def weights() -> list[np.ndarray]:
    """Weights of rendered rays, in normalised distance."""
    sigmas, _, starts, ends = dense_samples()
    rendered, _ = metal_ops.render_weights(sigmas, starts, ends)
    return [rendered.numpy(), (starts - 2) / 4, (ends - 2) / 4]


WORKS = {
    "dense": elementwise.Work(
        ours=metal_ops.distortion_loss,
        stock={"running sums": "distortion", "double sum": "distortion_pairs"},
        arrays=weights,
        gradients=(0,),
        forward_traffic=(3 * N, 0),
        # The slope is made on the way forwards, and scaled.
        gradient_traffic=(4 * N, 2 * N),
        on_device="benchmarks.cases.distortion_loss:dense",
        calls=elementwise.calls_of(N),
        note="in float64",
    )
}
for _backward in (False, True):
    register(
        Case(
            group="rays",
            name=f"rays-distortion-{'gradient' if _backward else 'forward'}",
            title=f"Distortion loss of {RAYS} rays x {SAMPLES} samples"
            + elementwise.times(WORKS["dense"].calls)
            + (": forward + gradient" if _backward else ": forward"),
            contenders=partial(elementwise.contenders, WORKS["dense"], _backward),
            units=N * WORKS["dense"].calls,
            unit="samples",
            in_quick=_backward,
        )
    )
