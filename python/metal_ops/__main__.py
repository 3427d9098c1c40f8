"""`python -m metal_ops`."""

import sys

from metal_ops.cli import main

sys.exit(main())
