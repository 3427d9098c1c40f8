"""Right calls of the ops of kernels/sh_encode."""

import numpy as np

from tests.fuzz.values import F4, POINTS, N

PUBLIC = {
    "sh_encode": dict(directions=POINTS, degree=3),
}
RAW = {
    "sh_encode": dict(directions=POINTS, degree=3),
    "sh_encode_grad": dict(gradients=np.ones((N, 9), F4), directions=POINTS, degree=3),
}
