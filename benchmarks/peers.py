"""Contenders in another interpreter (.venv-peers), as JAX and PyTorch do not share TensorFlow's environment.

One worker process a library runs `peer_worker.py`, or another script that serves as it does: a line of JSON in, a line
out. It times itself, so that the pipe is not part of the figure.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.registry import Contender

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / ".venv-peers" / "bin" / "python"


class Peer:
    """A worker process of one library. Close it when done."""

    def __init__(
        self,
        library: str,
        inputs: dict[str, np.ndarray],
        settings: dict[str, Any],
        worker: str,
        python: Path,
        environment: dict[str, str],
    ) -> None:
        if not python.exists():
            raise FileNotFoundError(
                f"[benchmarks] {python} is missing. Run 'make bench PEERS=1', which makes it."
            )
        self._folder = tempfile.TemporaryDirectory()
        self._log = (ROOT / "build" / f"peer-{library}.log").open("w")
        self._process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name(worker)), library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH" or python != PYTHON}
            | environment,
        )
        self.version: Any = self.load(inputs, settings)

    def load(self, inputs: dict[str, np.ndarray], settings: dict[str, Any]) -> Any:
        """Gives the worker other work, and returns its answer: its library's version, mostly."""
        file = Path(self._folder.name) / "inputs.npz"
        np.savez(file, **inputs)
        return self.ask(op="load", file=str(file), settings=settings)["version"]

    def ask(self, **message: Any) -> dict[str, Any]:
        """Sends one request and waits for the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the worker ended; see {Path(self._log.name).relative_to(ROOT)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def contender(self, name: str, variant: str, note: str = "") -> Contender:
        """A row that is timed in the worker."""

        def results() -> dict[str, np.ndarray]:
            file = Path(self._folder.name) / "results.npz"
            self.ask(op="results", variant=variant, file=str(file))
            with np.load(file) as arrays:
                return dict(arrays)

        return Contender(
            name, lambda: float(self.ask(op="time", variant=variant)["ms"]), results, note
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._log.close()
        self._folder.cleanup()


def start(
    stack: ExitStack,
    library: str,
    inputs: dict[str, np.ndarray],
    settings: dict[str, Any],
    worker: str = "peer_worker.py",
    python: Path = PYTHON,
    **environment: str,
) -> Peer:
    """A worker that lives as long as the case, with these environment variables besides its parent's."""
    peer = Peer(library, inputs, settings, worker, python, environment)
    stack.callback(peer.close)
    return peer
