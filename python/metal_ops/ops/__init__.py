"""One file an op family: the public functions and their registered gradients. Files are found by name."""

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what the loop below does, for type checkers and editors; optional
    from metal_ops.ops.distortion_loss import *  # noqa: F403
    from metal_ops.ops.focal_loss import *  # noqa: F403
    from metal_ops.ops.frequency_encode import *  # noqa: F403
    from metal_ops.ops.fused_conv2d import *  # noqa: F403
    from metal_ops.ops.fused_matmul import *  # noqa: F403
    from metal_ops.ops.fused_mlp import *  # noqa: F403
    from metal_ops.ops.fused_optimizer import *  # noqa: F403
    from metal_ops.ops.hash_encode import *  # noqa: F403
    from metal_ops.ops.metal_kernel import *  # noqa: F403
    from metal_ops.ops.null_op import *  # noqa: F403
    from metal_ops.ops.packed_scan import *  # noqa: F403
    from metal_ops.ops.ray_march import *  # noqa: F403
    from metal_ops.ops.robust_loss import *  # noqa: F403
    from metal_ops.ops.sh_encode import *  # noqa: F403
    from metal_ops.ops.softshrink import *  # noqa: F403
    from metal_ops.ops.volume_render import *  # noqa: F403
    from metal_ops.ops.zero_out import *  # noqa: F403
else:
    __all__ = []
    for _file in pkgutil.iter_modules(__path__):  # noqa: F405
        if not _file.name.startswith("_"):
            _module = importlib.import_module(f"{__name__}.{_file.name}")
            globals().update({name: getattr(_module, name) for name in _module.__all__})
            __all__ += _module.__all__
