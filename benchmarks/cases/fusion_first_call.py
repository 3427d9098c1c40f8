"""The time that the fusion pass adds to the first call of a function, in which TensorFlow traces, places and
optimizes it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from benchmarks import peers
from benchmarks.registry import Case, Contender, Context, register

MODELS = {"ResNet50": 64, "MobileNetV2": 64, "EfficientNetB0": 64, "InceptionV3": 75, "DenseNet121": 64}  # fmt: skip


def contenders(model: str, pixels: int, training: bool, context: Context) -> list[Contender]:
    worker = peers.start(
        context.stack,
        "first-call",
        {},
        {"model": model, "pixels": pixels, "training": training},
        "first_call_worker.py",
        Path(sys.executable),
    )
    return [
        worker.contender("fusion on", "on", worker.version),
        worker.contender("fusion off", "off", worker.version),
    ]


for _model, _pixels in MODELS.items():
    register(
        Case(
            group="fusion_first_call",
            name=f"fusion_first_call-{_model}",
            title=f"first call of {_model} for 2 pictures of {_pixels}x{_pixels}, on the Metal device",
            contenders=partial(contenders, _model, _pixels, False),
            in_quick=False,
        )
    )
register(
    Case(
        group="fusion_first_call",
        name="fusion_first_call-training",
        title="first call of MobileNetV2's training step for 2 pictures of 64x64, on the Metal device",
        contenders=partial(contenders, "MobileNetV2", 64, True),
        in_quick=False,
        tolerance=1e-3,
    )
)
