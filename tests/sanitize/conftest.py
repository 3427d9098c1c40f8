"""Without the instrumented libraries there is nothing to test: `make sanitize-ops` sets the variable."""

import os

collect_ignore_glob = [] if os.environ.get("METAL_OPS_SANITIZED") else ["test_*.py"]
