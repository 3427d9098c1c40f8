"""benchmarks/formulas.py in JAX and PyTorch, run by benchmarks/peers.py in .venv-peers.

inputs: the formula's arguments a0, a1, ... and, for gradients of a result that is no scalar, `incoming`. settings:
formula, gradients (which arguments are differentiated, a list of numbers), calls (how many make one measurement).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from formulas import FORMULAS, Library
from peer_worker import serve


def arguments(inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    return [inputs[f"a{i}"] for i in range(len(inputs)) if f"a{i}" in inputs]


def repeated(calls: int, work: Callable[[], Any]) -> Callable[[], Any]:
    """The work so many times; the last results."""

    def run() -> Any:
        for _ in range(calls - 1):
            work()
        return work()

    return run


def jax_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    import jax
    import jax.numpy as jnp

    # Arrays of float32 stay such; without it there is no float64 to sum in.
    jax.config.update("jax_enable_x64", settings["formula"] == "render_segments")
    library = Library(
        jnp.where, jnp.abs, jnp.sign, jnp.maximum, jnp.exp, jnp.log1p, jnp.expm1, jnp.sin, jnp.cos,
        jax.nn.sigmoid, jax.nn.softplus, partial(jax.nn.log_softmax, axis=-1), jnp.mean,
        partial(jnp.sum, axis=-1), partial(jnp.stack, axis=-1), partial(jnp.concatenate, axis=-1),
        jnp.power, partial(jnp.sum, axis=1), partial(jnp.cumsum, axis=1), partial(jnp.cumprod, axis=1),
        lambda x, at: x[at], jnp.floor, lambda x: x.astype(jnp.int32), jnp.minimum,
        lambda x: x.astype(jnp.float64), lambda x: x.astype(jnp.float32), partial(jnp.cumsum, axis=0),
        lambda x, at, n: jax.ops.segment_sum(x, at, n, indices_are_sorted=True),
        jax.nn.relu,
        lambda q, k, v: jnp.swapaxes(
            jax.nn.dot_product_attention(*(jnp.swapaxes(x, 1, 2) for x in (q, k, v))), 1, 2
        ),
    )  # fmt: skip
    function = partial(FORMULAS[settings["formula"]], library)
    which = settings["gradients"]
    values = [jnp.asarray(value) for value in arguments(inputs)]
    incoming = jnp.asarray(inputs["incoming"]) if "incoming" in inputs else jnp.float32(1)

    def work(values: Any, incoming: Any) -> Any:
        def of_some(*some: Any) -> Any:
            every = list(values)
            for i, value in zip(which, some, strict=True):
                every[i] = value
            return function(*every)

        if not which:
            return (of_some(),)
        output, back = jax.vjp(of_some, *(values[i] for i in which))
        return output, *back(incoming)

    compiled = jax.jit(work)
    return f"jax {jax.__version__}", {
        "jit": repeated(
            settings["calls"], lambda: jax.block_until_ready(compiled(values, incoming))
        )
    }


def torch_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    import torch

    library = Library(
        torch.where, torch.abs, torch.sign, torch.maximum, torch.exp, torch.log1p, torch.expm1,
        torch.sin, torch.cos, torch.sigmoid, torch.nn.functional.softplus,
        partial(torch.log_softmax, dim=-1), torch.mean, partial(torch.sum, dim=-1),
        partial(torch.stack, dim=-1), partial(torch.cat, dim=-1), torch.pow, partial(torch.sum, dim=1),
        partial(torch.cumsum, dim=1), partial(torch.cumprod, dim=1), lambda x, at: x[at], torch.floor,
        lambda x: x.to(torch.int32), torch.minimum, lambda x: x.double(), lambda x: x.float(),
        partial(torch.cumsum, dim=0), lambda x, at, n: x.new_zeros(n, x.shape[1]).index_add(0, at, x),
        torch.relu, torch.nn.functional.scaled_dot_product_attention,
    )  # fmt: skip
    own = {"softshrink": partial(torch.nn.functional.softshrink, lambd=0.5)}
    function = partial(FORMULAS[settings["formula"]], library)
    which = settings["gradients"]
    values = [torch.from_numpy(np.array(value)) for value in arguments(inputs)]
    for i in which:
        values[i].requires_grad_(True)
    incoming = torch.from_numpy(inputs["incoming"]) if "incoming" in inputs else None

    def work(function: Any) -> Any:
        if not which:
            with torch.no_grad():
                return (function(*values),)
        output = function(*values)
        return output.detach(), *torch.autograd.grad(output, [values[i] for i in which], incoming)

    return f"torch {torch.__version__}", {
        "eager": repeated(settings["calls"], partial(work, own.get(settings["formula"], function))),
        "compile": repeated(settings["calls"], partial(work, torch.compile(function))),
    }


if __name__ == "__main__":
    names = ("output", *(f"gradient{i}" for i in range(8)))
    serve({"jax": jax_variants, "torch": torch_variants}, names)
