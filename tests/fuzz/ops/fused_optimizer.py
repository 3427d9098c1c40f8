"""Right calls of the ops of kernels/fused_optimizer."""

import numpy as np

from tests.fuzz.values import POINTS, handle, variable

NUMBERS = {name: np.float64(value) for name, value in dict(lr=0.1, weight_decay=0).items()}
PUBLIC = {
    "fused_adam": dict(
        variable=variable(POINTS),
        m=variable(POINTS),
        v=variable(POINTS),
        gradient=POINTS,
        step=1,
        learning_rate=0.1,
        weight_decay=0.0,
        skip_zero_rows=False,
    ),
    "fused_sgd": dict(
        variable=variable(POINTS),
        gradient=POINTS,
        learning_rate=0.1,
        momentum=0.9,
        m=variable(POINTS),
        nesterov=False,
    ),
}
RAW = {
    "resource_fused_adam": dict(
        var=handle(POINTS),
        m=handle(POINTS),
        v=handle(POINTS),
        hats=[],
        step=np.int64(1),
        beta1=np.float64(0.9),
        beta2=np.float64(0.99),
        epsilon=np.float64(1e-8),
        gradient=POINTS,
        skip_zero_rows=False,
        **NUMBERS,
    ),
    "resource_fused_sgd": dict(
        var=handle(POINTS),
        momenta=[handle(POINTS)],
        momentum=np.float64(0.9),
        gradient=POINTS,
        nesterov=False,
        **NUMBERS,
    ),
}
