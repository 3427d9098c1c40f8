"""Right calls of the ops of kernels/frequency_encode."""

import numpy as np

from tests.fuzz.values import F4, POINTS, N

PUBLIC = {
    "frequency_encode": dict(x=POINTS, n_frequencies=3, include_input=True, times_pi=True),
}
RAW = {
    "frequency_encode": dict(inputs=POINTS, n_frequencies=3, include_input=True, times_pi=True),
    "frequency_encode_grad": dict(
        gradients=np.ones((N, 21), F4), inputs=POINTS, n_frequencies=3, include_input=True
    ),
}
