"""fused_mlp against the layers it stands for: the two networks of a radiance field."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np

import metal_ops
from benchmarks import elementwise


def network(sizes: tuple[int, ...], n: int) -> elementwise.Work:
    """Layers of these sizes, inputs and outputs included, of n rows."""

    def arrays() -> list[np.ndarray]:
        random = np.random.default_rng(0)
        kernels = [
            random.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))
            for shape in pairwise(sizes)
        ]
        return [random.standard_normal((n, sizes[0]), np.float32), *kernels]

    return elementwise.Work(
        ours=lambda x, *kernels: metal_ops.fused_mlp(x, list(kernels)),
        stock={"a product and a ReLU a layer": "relu_layers"},
        arrays=arrays,
        gradients=tuple(range(len(sizes))),
        forward_traffic=(sizes[0] * n, sizes[-1] * n),
        # Inputs twice, as the gradient computes the hidden layers again.
        gradient_traffic=((2 * sizes[0] + sizes[-1]) * n, (sizes[0] + sizes[-1]) * n),
        calls=elementwise.calls_of(sizes[0] * n),
    )


for _name, _sizes in {"density": (32, 64, 16), "colour": (32, 64, 64, 3)}.items():
    elementwise.register_cases(
        "fused_mlp",
        f"fused-mlp-{_name}",
        f"A network of {' -> '.join(map(str, _sizes))} on {{}} rows",
        partial(network, _sizes),
        (1 << 16, 1 << 12),
        "rows",
        # Sums of 65536 products in another order.
        tolerance=1e-3,
    )
