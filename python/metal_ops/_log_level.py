"""TF_CPP_MIN_LOG_LEVEL for messages that TensorFlow writes by Abseil, which does not read it: the lines about a new
device came at every level.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

# Abseil's names have its release; TensorFlow 2.18 to 2.21 have one of these.
_RELEASES = ("20230802", "20240116", "20240722", "20250127", "20250512", "20250814", "20260107")


def follow(folder: str) -> bool:
    """Hides messages below the level of TF_CPP_MIN_LOG_LEVEL: 1 hides information, 2 warnings, 3 errors.

    Args:
      folder: TensorFlow's, with libtensorflow_framework in it.

    Returns:
      Whether Abseil was told: it has the function, and the variable asks for a level above 0.
    """
    text = os.environ.get("TF_CPP_MIN_LOG_LEVEL", "")
    level = int(text) if text.isdecimal() and len(text) < 4 else 0
    if level == 0:
        return False
    framework = next(Path(folder).glob("libtensorflow_framework*"), None)
    if framework is None:
        return False
    library = ctypes.CDLL(str(framework))  # which TensorFlow has loaded
    for release in _RELEASES:
        name = f"_ZN4absl12lts_{release}14SetMinLogLevelENS0_18LogSeverityAtLeastE"
        if function := getattr(library, name, None):
            function.argtypes, function.restype = [ctypes.c_int], None
            function(level)
            return True
    return False
