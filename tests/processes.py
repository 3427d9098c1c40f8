"""Runs Python code in processes of its own, several at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests import forked
from tests.forked import ROOT, patience

__all__ = ["ROOT", "VALIDATION", "Process", "patience"]

# For these tests too: METAL_DEVICE_WRAPPER_TYPE=1 runs all kernels with their accesses checked, many times
# slower.
VALIDATION = os.environ.get("METAL_DEVICE_WRAPPER_TYPE") == "1"


class Process:
    """A running Python process; `finish()` gives its output.

    A fork of a process that has imported TensorFlow, where that makes no difference: not with a copy of the package
    (`path`), with variables that are read on import, or where `fresh` says so.
    """

    def __init__(
        self,
        *arguments: str,
        path: Path | None = None,
        cwd: Path = ROOT,
        descriptors: Sequence[int] = (),
        fresh: bool = False,
        **environment: str,
    ) -> None:
        server = forked.Server.of_this_run()
        variables = {
            name: value for name, value in os.environ.items() if name != "METAL_OPS_DEVICE"
        }
        variables |= {"TF_CPP_MIN_LOG_LEVEL": "2", "COLUMNS": "200", **environment}
        if path is not None:  # a copy of the package, found before the installed one
            variables["PYTHONPATH"] = str(path)
            fresh = True
        self._out, self._err = (tempfile.TemporaryFile("w+", errors="replace") for _ in range(2))
        files = self._out.fileno(), self._err.fileno()
        self._process: forked.Fork | subprocess.Popen[bytes]
        if not fresh and server.can(variables):
            self._process = server.start(arguments, variables, *files, descriptors, cwd)
        else:
            self._process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=cwd,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=files[0],
                stderr=files[1],
                pass_fds=descriptors,
            )
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def _ended(self, wait: float) -> bool:
        try:
            return self._process.wait(wait) is not None
        except subprocess.TimeoutExpired:
            return False

    def _said(self) -> tuple[str, str]:
        for file in (self._out, self._err):
            file.seek(0)
        return self._out.read(), self._err.read()

    def finish(self, timeout: float = 120) -> tuple[int, str, str]:
        """Returns (exit code, standard output, standard error); `timeout` is in seconds, as patience() counts them."""
        if not any(self._ended(wait) for wait in patience(timeout)):
            self.stop()
            out, err = self._said()
            raise AssertionError(f"no end after {timeout} s\n{out}\n{err}")
        code = self._process.returncode
        assert code is not None
        return code, *self._said()

    def stop(self) -> None:
        """Ends the process if it still runs."""
        self._process.kill()
        self._process.wait()

    def result(self) -> Any:
        """The JSON in the last line of output of a process that must succeed."""
        code, out, err = self.finish()
        assert code == 0, f"exit code {code}\n{out}\n{err}"
        return json.loads(out.splitlines()[-1])
