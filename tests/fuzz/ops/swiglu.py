"""Right calls of the ops of kernels/swiglu."""

from tests.fuzz.values import POINTS

PUBLIC = {"swiglu": dict(gate=POINTS, up=POINTS)}
RAW = {
    "swiglu": dict(gate=POINTS, up=POINTS),
    "swiglu_grad": dict(gradients=POINTS, gate=POINTS, up=POINTS),
}
