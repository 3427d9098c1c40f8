"""Right calls of the ops of kernels/robust_loss."""

from tests.fuzz.values import F4, POINTS

PUBLIC = {
    "robust_loss": dict(x=POINTS, targets=POINTS, alpha=F4(1), scale=F4(1), reduce_last=False),
}
RAW = {
    "robust_loss": dict(
        predictions=POINTS,
        targets=POINTS,
        alpha=F4(1),
        scale=F4(1),
        reduce_last=False,
        parameter_gradients=True,
    ),
}
