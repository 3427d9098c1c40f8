"""Hash encoding in JAX and PyTorch, run by benchmarks/peers.py in .venv-peers. Needs neither TensorFlow nor metal_ops.

Both are written the way their users would for speed: levels unrolled, one gather a level for all corners, uint32 (JAX)
or int32 (PyTorch) arithmetic, a mask instead of the modulo where a level's size is a power of two. Gradients come from
the libraries' automatic differentiation.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

# settings["mode"]: how much of (outputs, table gradient, point gradient) is wanted.
MODES = {"forward": 1, "table": 2, "points": 3}
NAMES = ("outputs", "table_gradient", "point_gradient")


def corner_bits(dims: int) -> np.ndarray:
    return np.array([[(c >> d) & 1 for d in range(dims)] for c in range(1 << dims)], np.int32)


def jax_variants(inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> tuple[str, dict]:
    import jax
    import jax.numpy as jnp

    bits = corner_bits(inputs["points"].shape[1])
    mode = MODES[settings["mode"]]

    def encode(points: Any, table: Any) -> Any:
        outputs = []
        for level in settings["levels"]:
            position = points * np.float32(level["scale"]) + np.float32(0.5)
            cell = jnp.floor(position)
            weight = position - cell
            low = cell.astype(jnp.int32).astype(jnp.uint32)
            rows, weights = [], []
            for corner in bits:
                terms = [
                    (low[:, d] + np.uint32(bit)) * np.uint32(level["factors"][d])
                    for d, bit in enumerate(corner)
                ]
                row, scaled = terms[0], 1.0
                for term in terms[1:]:
                    row = row ^ term if level["hashed"] else row + term
                for d, bit in enumerate(corner):
                    scaled = scaled * (weight[:, d] if bit else 1 - weight[:, d])
                size = level["size"]
                power = size & (size - 1) == 0
                rows.append(row & np.uint32(size - 1) if power else row % np.uint32(size))
                weights.append(scaled)
            row = jnp.stack(rows).astype(jnp.int32) + level["offset"]
            features = table.at[row].get(mode="promise_in_bounds")
            outputs.append(jnp.einsum("cn,cnf->nf", jnp.stack(weights), features))
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

    bits = torch.from_numpy(corner_bits(inputs["points"].shape[1]))
    mode = MODES[settings["mode"]]

    def signed(value: int) -> int:
        return value - (1 << 32) if value >= 1 << 31 else value

    def encode(points: Any, table: Any) -> Any:
        outputs = []
        for level in settings["levels"]:
            position = points * level["scale"] + 0.5
            cell = torch.floor(position)
            weight = position - cell
            corner = cell.to(torch.int32)[None] + bits[:, None]  # [2^D, N, D]
            row = corner[..., 0] * signed(level["factors"][0])
            for d in range(1, corner.shape[-1]):
                term = corner[..., d] * signed(level["factors"][d])
                row = torch.bitwise_xor(row, term) if level["hashed"] else row + term
            size = level["size"]
            row = row & (size - 1) if size & (size - 1) == 0 else row % size
            upper = bits[:, None] > 0
            weights = torch.where(upper, weight[None], 1 - weight[None]).prod(-1)
            features = torch.nn.functional.embedding(row + level["offset"], table)
            outputs.append((features * weights[..., None]).sum(0))
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
        "eager": lambda: work(encode),
        "compile": lambda: work(compiled),
    }


def main() -> None:
    # Libraries print: the pipe is kept for answers, and file descriptor 1 joins the log.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    make = {"jax": jax_variants, "torch": torch_variants}[sys.argv[1]]
    variants: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        message = json.loads(line)
        try:
            answer: dict[str, Any] = {}
            if message["op"] == "load":
                with np.load(message["file"]) as arrays:
                    answer["version"], variants = make(dict(arrays), message["settings"])
            elif message["op"] == "time":
                work = variants[message["variant"]]
                start = time.perf_counter()
                work()
                answer["ms"] = (time.perf_counter() - start) * 1e3
            else:
                results = variants[message["variant"]]()
                named = zip(NAMES, results, strict=False)
                np.savez(message["file"], **{name: np.asarray(value) for name, value in named})
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
