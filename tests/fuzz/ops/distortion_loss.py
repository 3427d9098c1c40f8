"""Right calls of the ops of kernels/distortion_loss."""

import numpy as np

from tests.fuzz.values import ALONG, F4, PACKED, RAYS, T

PUBLIC = {
    "distortion_loss": dict(weights=T, **ALONG, t_gradients=True),
}
RAW = {
    "distortion_loss": dict(weights=T, **ALONG, t_gradients=True),
    "scale_rays": dict(incoming=np.ones(RAYS, F4), slope=T, packed_info=PACKED),
}
