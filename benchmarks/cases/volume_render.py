"""volume_render and running sums along rays against compositions of stock ops."""

from __future__ import annotations

from functools import partial

import numpy as np

import metal_ops
from benchmarks import elementwise
from benchmarks.registry import Case, register

RAYS, SAMPLES = 4096, 64
LONGEST = 192
N = RAYS * SAMPLES


def dense_samples() -> list[np.ndarray]:
    """sigmas, rgbs, t_starts, t_ends: rays that become opaque after about two thirds of their samples."""
    random = np.random.default_rng(0)
    t = np.linspace(2, 6, SAMPLES + 1, dtype=np.float32)
    starts, ends = (np.tile(x, (RAYS, 1)) for x in (t[:-1], t[1:]))
    sigmas = random.exponential(1, (RAYS, SAMPLES)).astype(np.float32)
    return [sigmas, random.random((RAYS, SAMPLES, 3), np.float32), starts, ends]


def packed_samples() -> list[np.ndarray]:
    """As many samples, 0 to LONGEST a ray; then packed_info, the numbers of a ray's samples, and each sample's ray."""
    random = np.random.default_rng(1)
    counts = np.minimum(random.exponential(SAMPLES, RAYS), LONGEST).astype(np.int32)
    counts[::16] = 0
    info = np.stack([np.cumsum(counts) - counts, counts], axis=1).astype(np.int32)
    n = int(counts.sum())
    starts = (np.arange(n) - np.repeat(info[:, 0], counts)).astype(np.float32) / 32
    return [
        random.exponential(1, n).astype(np.float32),
        random.random((n, 3), np.float32),
        starts,
        starts + np.float32(1 / 32),
        info,
        np.arange(LONGEST, dtype=np.int32),
        np.repeat(np.arange(RAYS, dtype=np.int32), counts),
    ]


NOTE = (
    "float32; also makes opacity, both depths and weights, which the others leave out. Two exponentials and a serial "
    "sum a sample: the limit is arithmetic, not memory."
)
# Forwards 6 floats a sample are read and a weight is written; backwards they are read again, and 4 written.
TRAFFIC = {"forward_traffic": (6 * N, N), "gradient_traffic": (12 * N, 5 * N)}
WORKS = {
    "dense": elementwise.Work(
        ours=lambda *samples: metal_ops.volume_render(*samples).rgb,
        stock={"equation 3": "render"},
        arrays=dense_samples,
        gradients=(0, 1),
        **TRAFFIC,
        on_device="benchmarks.cases.volume_render:dense",
        note=NOTE,
    ),
    "packed": elementwise.Work(
        ours=lambda *a: metal_ops.volume_render(*a[:5]).rgb,
        stock={"padded": "render_padded", "segment sums": "render_segments"},
        all_everywhere=True,
        arrays=packed_samples,
        gradients=(0, 1),
        **TRAFFIC,
        on_device="benchmarks.cases.volume_render:packed",
        note=NOTE,
    ),
    "running-sum": elementwise.Work(
        ours=metal_ops.inclusive_sum,
        stock={"cumsum": "running_sum"},
        arrays=lambda: dense_samples()[:1],
        gradients=(0,),
        forward_traffic=(N, N),
        gradient_traffic=(2 * N, 2 * N),
        calls=elementwise.calls_of(N),
        note="summed in float64",
    ),
    "running-product": elementwise.Work(
        ours=metal_ops.inclusive_prod,
        stock={"cumprod": "running_product"},
        arrays=lambda: [np.exp(-dense_samples()[0] / 16)],
        gradients=(0,),
        forward_traffic=(N, N),
        gradient_traffic=(4 * N, 2 * N),
        calls=elementwise.calls_of(N),
        note="multiplied in float64; the gradient divides by nothing, so it is right where factors are 0",
    ),
}
_titles = {
    "dense": f"Volume rendering of {RAYS} rays x {SAMPLES} samples",
    "packed": f"Volume rendering of {RAYS} rays of 0 to {LONGEST} samples, packed",
    "running-sum": f"Running sums along {RAYS} rays x {SAMPLES} samples",
    "running-product": f"Running products along {RAYS} rays x {SAMPLES} samples",
}
for _name, _work in WORKS.items():
    for _backward in (False, True):
        register(
            Case(
                group="rays",
                name=f"rays-{_name}-{'gradient' if _backward else 'forward'}",
                title=_titles[_name]
                + elementwise.times(_work.calls)
                + (": forward + gradient" if _backward else ": forward"),
                contenders=partial(elementwise.contenders, _work, _backward),
                units=N * _work.calls,
                unit="samples",
                in_quick=_backward and _name in ("dense", "packed"),
            )
        )
