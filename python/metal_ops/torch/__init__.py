"""metal_ops for PyTorch: its ops as torch.ops.metal_ops.*, functions, and modules. TensorFlow is not needed.

import torch, metal_ops.torch
encoding = metal_ops.torch.HashEncoding(metal_ops.torch.HashGrid(n_dims=3))
features = encoding(torch.rand(1000, 3))  # [1000, 32]
"""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("torch") is None:
    raise ImportError(
        "metal_ops.torch: PyTorch is not installed; `pip install 'torch>=2.10'` (for the CPU)."
    )

import torch as _torch

from metal_ops.torch import _declared

_RELEASE = tuple(int(part) for part in _torch.__version__.split("+")[0].split(".")[:2])
if _RELEASE < _declared.OLDEST:
    raise ImportError(
        f"metal_ops.torch: PyTorch {_torch.__version__} is installed, and its stable interface for ops is there from "
        f"{'.'.join(map(str, _declared.OLDEST))} on; `pip install 'torch>=2.10'`."
    )

from metal_ops.torch import _registered  # noqa: E402

_registered.register()

from metal_ops.grid import HashGrid  # noqa: E402
from metal_ops.torch import ops  # noqa: E402
from metal_ops.torch.modules import (  # noqa: E402
    Frequency,
    FusedMLP,
    HashEncoding,
    NetworkWithInputEncoding,
    SphericalHarmonics,
)
from metal_ops.torch.rendering import (  # noqa: E402
    accumulate_along_rays,
    distortion,
    exclusive_prod,
    exclusive_sum,
    inclusive_prod,
    inclusive_sum,
    pack_info,
    render_weight_from_density,
    volume_render,
)

__all__ = ["Frequency", "FusedMLP", "HashEncoding", "HashGrid", "NetworkWithInputEncoding"]
__all__ += ["SphericalHarmonics", "accumulate_along_rays", "distortion", "exclusive_prod"]
__all__ += ["exclusive_sum", "inclusive_prod", "inclusive_sum", "ops", "pack_info"]
__all__ += ["render_weight_from_density", "volume_render"]
