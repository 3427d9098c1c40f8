"""Right calls of the ops of kernels/cache_rows."""

import numpy as np

from tests.fuzz.values import F4, N, handle, variable

ROWS = np.linspace(-1, 1, N * 2 * 3 * 4, dtype=F4).reshape(N, 2, 3, 4)
PLACES = dict(starts=np.ones(N, np.int32), counts=np.full(N, 2, np.int32), ring=False)
PUBLIC = {"cache_rows": dict(cache=variable(np.zeros((N, 2, 5, 4), F4)), rows=ROWS, **PLACES)}
RAW = {"resource_cache_rows": dict(cache=handle(np.zeros((N, 2, 5, 4), F4)), rows=ROWS, **PLACES)}
