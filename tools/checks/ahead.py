"""Compiles the kernels that `make test-checks` calls, many at a time."""

from __future__ import annotations

import sys

from metal_ops.metal import deferred
from tools.checks.functions import LIBRARIES, ROOT, common, objects

if __name__ == "__main__":
    for library in LIBRARIES:
        deferred.checks_ahead(objects(library), common(library), str(ROOT))
    sys.exit(0)
