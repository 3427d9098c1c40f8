"""Adam and SGD in JAX and PyTorch, run by benchmarks/peers.py in .venv-peers. Needs neither TensorFlow nor metal_ops.

JAX's is written as optax does it, jitted as a whole with its buffers donated; PyTorch's are its own optimizers.

inputs: x0, x1, ... and g0, g1, ...: variables and gradients. settings: kind ("adam" or "sgd"), lr, beta_1, beta_2,
epsilon, momentum, steps (that make one measurement), check_steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from peer_worker import serve


class Steps:
    """A training run, `steps` a call. `results` are those of `check_steps` steps of a run of its own."""

    def __init__(self, start: Callable[[], Callable[[], Any]], settings: dict[str, Any]) -> None:
        self.start, self.step = start, start()
        self.steps, self.check_steps = settings["steps"], settings["check_steps"]

    def __call__(self) -> None:
        for _ in range(self.steps):
            self.step()

    def results(self) -> Any:
        step = self.start()
        for _ in range(self.check_steps):
            variables = step()
        return variables


def split(inputs: dict[str, np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    count = len(inputs) // 2
    return [inputs[f"x{i}"] for i in range(count)], [inputs[f"g{i}"] for i in range(count)]


def jax_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    import jax
    import jax.numpy as jnp

    variables, gradients = split(inputs)
    lr, beta_1, beta_2 = settings["lr"], settings["beta_1"], settings["beta_2"]

    def adam(state: Any, gradients: Any) -> Any:
        xs, ms, vs, count = state
        count = count + 1
        ms = [m + (g - m) * (1 - beta_1) for m, g in zip(ms, gradients, strict=True)]
        vs = [v + (g * g - v) * (1 - beta_2) for v, g in zip(vs, gradients, strict=True)]
        alpha = lr * jnp.sqrt(1 - beta_2**count) / (1 - beta_1**count)
        xs = [
            x - alpha * m / (jnp.sqrt(v) + settings["epsilon"])
            for x, m, v in zip(xs, ms, vs, strict=True)
        ]
        return xs, ms, vs, count

    def sgd(state: Any, gradients: Any) -> Any:
        xs, ms, vs, count = state
        ms = [settings["momentum"] * m - lr * g for m, g in zip(ms, gradients, strict=True)]
        return [x + m for x, m in zip(xs, ms, strict=True)], ms, vs, count

    compiled = jax.jit(adam if settings["kind"] == "adam" else sgd, donate_argnums=0)
    constants = [jnp.asarray(gradient) for gradient in gradients]

    def start() -> Callable[[], Any]:
        def zeros() -> list[Any]:
            return [jnp.zeros(x.shape, jnp.float32) for x in variables]

        second = zeros() if settings["kind"] == "adam" else []
        state = ([jnp.array(x) for x in variables], zeros(), second, jnp.float32(0))

        def step() -> Any:
            nonlocal state
            state = jax.block_until_ready(compiled(state, constants))
            return state[0]

        return step

    return f"jax {jax.__version__}", {"jit": Steps(start, settings)}


def torch_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    import torch

    variables, gradients = split(inputs)

    def start(**options: bool) -> Callable[[], Any]:
        parameters = [torch.tensor(x, requires_grad=True) for x in variables]
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.from_numpy(gradient)
        if settings["kind"] == "adam":
            betas = settings["beta_1"], settings["beta_2"]
            optimizer = torch.optim.Adam(
                parameters, settings["lr"], betas, settings["epsilon"], **options
            )
        else:
            optimizer = torch.optim.SGD(parameters, settings["lr"], settings["momentum"], **options)

        def step() -> Any:
            optimizer.step()
            return [parameter.detach() for parameter in parameters]

        return step

    ways: dict[str, dict[str, bool]] = {
        "loop": {"foreach": False},
        "foreach": {"foreach": True},
        "fused": {"fused": True},
    }
    return f"torch {torch.__version__}", {
        name: Steps(partial(start, **options), settings) for name, options in ways.items()
    }


if __name__ == "__main__":
    serve({"jax": jax_variants, "torch": torch_variants}, tuple(f"x{i}" for i in range(64)))
