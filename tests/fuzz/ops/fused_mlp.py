"""Right calls of the ops of kernels/fused_mlp."""

import numpy as np

from tests.fuzz.values import F4, POINTS, N

NETWORK = dict(
    x=POINTS, weights=np.ones(3 * 16 + 16 * 2, F4), n_outputs=2, n_neurons=16, n_hidden_layers=1
)
PUBLIC = {
    "fused_mlp": dict(
        x=POINTS, kernels=[np.ones((3, 16), F4), np.ones((16, 2), F4)], activation="relu"
    ),
}
RAW = {
    "fused_mlp": dict(**NETWORK, activation="relu", output_activation="none", use_bias=False),
    "fused_mlp_grad": dict(
        gradients=np.ones((N, 2), F4), **NETWORK, use_bias=False, x_gradient=True
    ),
}
