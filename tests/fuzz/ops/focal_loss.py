"""Right calls of the ops of kernels/focal_loss."""

from tests.fuzz.values import POINTS

PUBLIC = {
    "focal_loss": dict(
        logits=POINTS, targets=POINTS, alpha=0.25, gamma=2.0, label_smoothing=0.0, reduce_last=False
    ),
    "softmax_cross_entropy": dict(logits=POINTS, targets=POINTS, label_smoothing=0.0, z_loss=0.0),
}
RAW = {
    "sigmoid_focal_loss": dict(
        logits=POINTS,
        targets=POINTS,
        alpha=0.25,
        gamma=2.0,
        label_smoothing=0.0,
        balanced=True,
        reduce_last=False,
    ),
    "softmax_focal_loss": dict(
        logits=POINTS, targets=POINTS, alpha=0.25, gamma=2.0, label_smoothing=0.0, z_loss=0.0
    ),
}
