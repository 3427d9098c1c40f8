"""Runs Python code in processes of its own, several at once: each spends seconds on importing TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Of these tests too: METAL_DEVICE_WRAPPER_TYPE=1 runs all kernels with their accesses checked, many times slower.
VALIDATION = os.environ.get("METAL_DEVICE_WRAPPER_TYPE") == "1"


def patience(seconds: float) -> Iterator[float]:
    """Times to wait, one after the other, that make `seconds` of a machine with nobody else on it.

    Where more processes want a core than there are, a second counts as what each of them has of it: limits by the clock
    ended files of tests that were at work, where others compiled.
    """
    cores = os.cpu_count() or 1
    while seconds > 0:
        wait = min(5.0, max(seconds, 0.1))
        yield wait
        seconds -= wait * min(1.0, cores / max(os.getloadavg()[0], 1e-3))


class Process:
    """A running Python process; `finish()` gives what it printed."""

    def __init__(
        self,
        *arguments: str,
        path: Path | None = None,
        descriptors: Sequence[int] = (),
        **environment: str,
    ) -> None:
        variables = {
            name: value for name, value in os.environ.items() if name != "METAL_OPS_DEVICE"
        }
        variables |= {"TF_CPP_MIN_LOG_LEVEL": "2", "COLUMNS": "200", **environment}
        if path is not None:  # a copy of the package, found before the installed one
            variables["PYTHONPATH"] = str(path)
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=descriptors,
        )

    def finish(self, timeout: float = 120) -> tuple[int, str, str]:
        """Returns (exit code, standard output, standard error); `timeout` is in seconds, as patience() counts them."""
        for wait in patience(timeout):
            try:
                out, err = self._process.communicate(timeout=wait)
            except subprocess.TimeoutExpired:
                continue
            return self._process.returncode, out, err
        self._process.kill()
        out, err = self._process.communicate()
        raise AssertionError(f"no end after {timeout} s\n{out}\n{err}")

    def stop(self) -> None:
        """Ends the process if it still runs."""
        self._process.kill()
        self._process.wait()

    def result(self) -> Any:
        """The JSON in the last line of output of a process that must succeed."""
        code, out, err = self.finish()
        assert code == 0, f"exit code {code}\n{out}\n{err}"
        return json.loads(out.splitlines()[-1])
