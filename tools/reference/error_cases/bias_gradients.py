"""The gradients of a bias, or of a batch norm, and of the activation behind it."""

from __future__ import annotations

from collections.abc import Iterator

from tests import test_fused_batch_norm_grad, test_fused_bias_grad
from tools.reference.error_cases import DTYPES, Case


def cases() -> Iterator[Case]:
    for dtype in DTYPES:
        for activation in ("Relu", "Tanh", "GeluExact", "GeluApproximate", "Swish", "Mish"):
            gradients, features = test_fused_bias_grad.make((300, 65), dtype)
            right = test_fused_bias_grad.right(gradients, features, activation)
            for output in range(2):

                def call(given=(gradients, features, activation), output=output):
                    return test_fused_bias_grad.call(*given)[output]

                yield "MetalFusedBiasGrad", dtype, call, right[output]
        given = test_fused_batch_norm_grad.make((300, 65), dtype)
        expected = test_fused_batch_norm_grad.right(given)
        for output in range(3):

            def of_norm(given=given, output=output):
                return test_fused_batch_norm_grad.call(given)[output]

            yield "MetalFusedBatchNormGrad", dtype, of_norm, expected[output]
