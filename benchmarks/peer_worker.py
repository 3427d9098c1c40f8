"""Hash encoding in JAX and PyTorch, run by benchmarks/peers.py in .venv-peers. Needs neither TensorFlow nor metal_ops.

Both are written the way their users would for speed, and the fastest of the ways that were tried: levels and corners
unrolled so that the compilers fuse them, uint32 (JAX) or int32 (PyTorch) arithmetic, a mask instead of the modulo where
a level's size is a power of two, tables split into levels where that makes gradients cheaper. Gradients come from the
libraries' automatic differentiation.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

# settings["mode"]: how much of (outputs, table gradient, point gradient) is wanted.
MODES = {"forward": 1, "table": 2, "points": 3}
NAMES = ("outputs", "table_gradient", "point_gradient")


def corner_bits(dims: int) -> list[list[int]]:
    return [[(c >> d) & 1 for d in range(dims)] for c in range(1 << dims)]


def interpolate(
    level: dict[str, Any],
    low: list[Any],
    weight: list[Any],
    read: Callable[[Any], Any],
    wrap: Callable,
) -> Any:
    """One level: sum over the corners of weight * row, with the functions that JAX and PyTorch share."""
    size, total = level["size"], None
    for corner in corner_bits(len(low)):
        row = factor = None
        for d, bit in enumerate(corner):
            term = (low[d] + wrap(bit)) * wrap(level["factors"][d])
            part = weight[d] if bit else 1 - weight[d]
            if row is None:
                row, factor = term, part
            else:
                row, factor = (row ^ term if level["hashed"] else row + term), factor * part
        row = row & wrap(size - 1) if size & (size - 1) == 0 else row % wrap(size)
        value = factor[:, None] * read(row)
        total = value if total is None else total + value
    return total


def jax_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    import jax
    import jax.numpy as jnp

    dims = inputs["points"].shape[1]
    mode = MODES[settings["mode"]]

    def encode(points: Any, table: Any) -> Any:
        outputs = []
        for level in settings["levels"]:
            position = points * np.float32(level["scale"]) + np.float32(0.5)
            cell = jnp.floor(position)
            low = cell.astype(jnp.int32).astype(jnp.uint32)

            def read(row: Any, offset: int = level["offset"]) -> Any:
                return table.at[row.astype(jnp.int32) + offset].get(mode="promise_in_bounds")

            axes = range(dims)
            low, weight = [low[:, d] for d in axes], [(position - cell)[:, d] for d in axes]
            outputs.append(interpolate(level, low, weight, read, np.uint32))
        return jnp.concatenate(outputs, axis=1)

    def work(points: Any, table: Any, incoming: Any) -> Any:
        if mode == 1:
            return (encode(points, table),)
        if mode == 2:
            outputs, back = jax.vjp(lambda t: encode(points, t), table)
            return outputs, *back(incoming)
        outputs, back = jax.vjp(encode, points, table)
        point_gradient, table_gradient = back(incoming)
        return outputs, table_gradient, point_gradient

    arrays = [jnp.asarray(inputs[name]) for name in ("points", "table", "incoming")]
    compiled = jax.jit(work)
    return f"jax {jax.__version__}", {"jit": lambda: jax.block_until_ready(compiled(*arrays))}


def torch_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    import torch

    mode = MODES[settings["mode"]]
    sizes = [level["size"] for level in settings["levels"]]

    def signed(value: int) -> int:
        return value - (1 << 32) if value >= 1 << 31 else value

    def encode(points: Any, table: Any, embed: bool = False) -> Any:
        outputs = []
        for level, part in zip(settings["levels"], torch.split(table, sizes), strict=True):
            position = points * level["scale"] + 0.5
            cell = torch.floor(position)
            low, weight = cell.to(torch.int32).unbind(1), (position - cell).unbind(1)

            # Eagerly, embedding() reads faster and its gradient is slower.
            def read(row: Any, part: Any = part) -> Any:
                return torch.nn.functional.embedding(row, part) if embed else part[row]

            outputs.append(interpolate(level, low, weight, read, signed))
        return torch.cat(outputs, 1)

    points = torch.from_numpy(inputs["points"]).requires_grad_(mode == 3)
    table = torch.from_numpy(inputs["table"]).requires_grad_(mode >= 2)
    incoming = torch.from_numpy(inputs["incoming"])

    def work(function: Callable) -> Any:
        outputs = function(points, table)
        wanted = ([table] if mode >= 2 else []) + ([points] if mode == 3 else [])
        gradients = torch.autograd.grad(outputs, wanted, incoming) if wanted else ()
        return (outputs.detach(), *gradients)

    compiled = torch.compile(encode)
    return f"torch {torch.__version__}", {
        "eager": lambda: work(partial(encode, embed=mode == 1)),
        "compile": lambda: work(compiled),
    }


def serve(
    libraries: dict[str, Callable],
    names: tuple[str, ...],
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Answers requests until the pipe ends. `libraries` make a version and its variants out of inputs and settings.

    A variant does its work once when it is called, and returns the results; or has `results()` for that. `clock` says
    seconds; with settings["processor_time"] it is the processor's, of all threads.
    """
    # Libraries print: the pipe is kept for answers, and file descriptor 1 joins the log.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    make = libraries[sys.argv[1]]
    variants: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        message = json.loads(line)
        try:
            answer: dict[str, Any] = {}
            if message["op"] == "load":
                settings = message["settings"]
                if settings.get("processor_time"):
                    clock = time.process_time
                with np.load(message["file"]) as arrays:
                    answer["version"], variants = make(dict(arrays), settings)
            elif message["op"] == "time":
                work = variants[message["variant"]]
                start = clock()
                work()
                answer["ms"] = (clock() - start) * 1e3
            else:
                work = variants[message["variant"]]
                results = getattr(work, "results", work)()
                named = zip(names, results, strict=False)
                np.savez(message["file"], **{name: np.asarray(value) for name, value in named})
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve({"jax": jax_variants, "torch": torch_variants}, NAMES)
