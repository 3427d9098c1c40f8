"""Right calls of the op of kernels/fused_bias_grad, which the fusion pass makes."""

from tests.fuzz.values import POINTS

PUBLIC: dict[str, dict] = {}
RAW = {
    "metal_fused_bias_grad": dict(
        gradients=POINTS, features=POINTS, activation="LeakyRelu", leakyrelu_alpha=0.3
    )
}
