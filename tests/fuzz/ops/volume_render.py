"""Right calls of the ops of kernels/volume_render."""

import numpy as np

from tests.fuzz.values import ALONG, F4, POINTS, RAYS, T

RENDERED = dict(sigmas=T, rgbs=POINTS, **ALONG, background=np.ones(3, F4))
PUBLIC = {
    "volume_render": dict(**RENDERED, early_stop_eps=0.0, normalize_depth=True, t_gradients=False),
    "render_weights": dict(sigmas=T, **ALONG, early_stop_eps=0.0, t_gradients=True),
}
RAW = {
    "render_weights": dict(sigmas=T, **ALONG, early_stop_eps=0.0, t_gradients=True),
    "render_weights_grad": dict(
        weights_gradient=T,
        transmittance_gradient=T,
        sigmas=T,
        **ALONG,
        early_stop_eps=0.0,
        t_gradients=True,
    ),
    "volume_render": dict(**RENDERED, early_stop_eps=0.0, t_gradients=False),
    "volume_render_grad": dict(
        rgb_gradient=np.ones((RAYS, 3), F4),
        opacity_gradient=np.ones(RAYS, F4),
        depth_gradient=np.ones(RAYS, F4),
        depth_median_gradient=np.ones(RAYS, F4),
        weights_gradient=T,
        **RENDERED,
        t_gradients=True,
    ),
}
