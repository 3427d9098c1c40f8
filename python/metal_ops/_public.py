"""The public names of metal_ops. Importing this loads the op library, or raises its one ImportError."""

from typing import TYPE_CHECKING

from metal_ops import _library

_library.load()

from metal_ops import (  # noqa: E402
    adapters,
    device,
    fusion,
    layers,
    losses,
    ops,
    optimizers,
    package,
    profiler,
    raw_ops,
)
from metal_ops.grid import HashGrid  # noqa: E402
from metal_ops.kv_cache import KVCache  # noqa: E402
from metal_ops.occupancy import OccupancyGrid  # noqa: E402
from metal_ops.ops import *  # noqa: E402, F403
from metal_ops.quantization import (  # noqa: E402
    LayerError,
    QuantizationReport,
    QuantizationSpec,
    quantization_report,
    quantize_model,
)

device.load_if_asked()
fusion.configure_from_environment()

if not TYPE_CHECKING:  # type checkers take every name above
    __all__ = ["HashGrid", "KVCache", "OccupancyGrid", "adapters", "device", "fusion", "layers"]
    __all__ += ["losses", "ops", "optimizers", "package", "profiler", "raw_ops", *ops.__all__]
    __all__ += ["LayerError", "QuantizationReport", "QuantizationSpec"]
    __all__ += ["quantization_report", "quantize_model"]
