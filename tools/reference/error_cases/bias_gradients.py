"""The gradients of a bias and of the activation behind it."""

from __future__ import annotations

from collections.abc import Iterator

from tests import test_fused_bias_grad
from tools.reference.error_cases import DTYPES, Case


def cases() -> Iterator[Case]:
    for dtype in DTYPES:
        for activation in ("Relu", "Tanh"):
            gradients, features = test_fused_bias_grad.make((300, 65), dtype)
            right = test_fused_bias_grad.right(gradients, features, activation)
            for output in range(2):

                def call(given=(gradients, features, activation), output=output):
                    return test_fused_bias_grad.call(*given)[output]

                yield "MetalFusedBiasGrad", dtype, call, right[output]
