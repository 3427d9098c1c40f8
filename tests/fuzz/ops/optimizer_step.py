"""Right calls of the ops of kernels/optimizer_step."""

import numpy as np

from tests.fuzz.values import POINTS, handle

HALF = np.float32(0.5)
PUBLIC = {}
RAW = {
    "resource_adam_step": dict(
        var=handle(POINTS),
        m=handle(POINTS),
        v=handle(POINTS),
        hats=[handle(POINTS)],
        gradient=POINTS,
        alpha=HALF,
        one_minus_beta1=HALF,
        one_minus_beta2=HALF,
        epsilon=HALF,
    ),
    "resource_rmsprop_step": dict(
        var=handle(POINTS),
        velocity=handle(POINTS),
        averages=[handle(POINTS)],
        momenta=[handle(POINTS)],
        gradient=POINTS,
        lr=HALF,
        rho=HALF,
        one_minus_rho=HALF,
        epsilon=HALF,
        momentum=[HALF],
    ),
    "resource_adagrad_step": dict(
        var=handle(POINTS), accumulator=handle(POINTS), gradient=POINTS, lr=HALF, epsilon=HALF
    ),
}
