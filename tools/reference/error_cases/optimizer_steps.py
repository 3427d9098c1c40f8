"""A variable after one step of the optimizers that the fusion pass makes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from metal_ops import raw_ops
from tests.oracles import optimizer_steps as oracle
from tools.reference.error_cases import DTYPES, Case, rounded, wide

SHAPE = (65, 3)
RMSPROP = dict(lr=0.01, rho=0.9, one_minus_rho=0.1, epsilon=0.5, momentum=0.8)
Step = tuple[str, Callable[..., None], Callable[..., oracle.Arrays], tuple[str, ...], dict]
STEPS: tuple[Step, ...] = (
    (
        "ResourceAdamStep",
        lambda kept, g, n: raw_ops.resource_adam_step(
            kept["var"], kept["m"], kept["v"], [kept["hats"]], g, **n
        ),
        oracle.adam,
        ("m", "v", "hats"),
        dict(alpha=0.01, one_minus_beta1=0.1, one_minus_beta2=0.1, epsilon=1e-3),
    ),
    (
        "ResourceRmspropStep",
        lambda kept, g, n: raw_ops.resource_rmsprop_step(
            *(kept["var"], kept["velocity"], [kept["averages"]], [kept["momenta"]], g),
            **{**n, "momentum": [n["momentum"]]},
        ),
        oracle.rmsprop,
        ("velocity", "averages", "momenta"),
        RMSPROP,
    ),
    (
        "ResourceAdagradStep",
        lambda kept, g, n: raw_ops.resource_adagrad_step(kept["var"], kept["accumulator"], g, **n),
        oracle.adagrad,
        ("accumulator",),
        dict(lr=0.01, epsilon=1e-3),
    ),
)


def cases() -> Iterator[Case]:
    random = np.random.default_rng(5)
    for op, step, formula, names, numbers in STEPS:
        for dtype in DTYPES:
            kept = {name: random.uniform(0.5, 2, SHAPE) for name in names}
            if "averages" in kept:
                kept["averages"] *= 0.3  # its square is less than the mean of squares
            kept["var"] = random.normal(size=SHAPE)
            kept = {name: rounded(value, dtype) for name, value in kept.items()}
            g = rounded(random.normal(size=SHAPE), dtype)
            n = {name: rounded(value, dtype) for name, value in numbers.items()}

            def run(step=step, kept=kept, g=g, n=n) -> tf.Tensor:
                variables = {name: tf.Variable(value) for name, value in kept.items()}
                handles = {name: variable.handle for name, variable in variables.items()}
                step(handles, tf.constant(g), {name: tf.constant(v) for name, v in n.items()})
                return variables["var"].read_value()

            states = {name: wide(value) for name, value in kept.items()}
            right = formula(states, wide(g), {name: wide(value) for name, value in n.items()})
            yield op, dtype, run, right["var"]
