"""pytest in processes of their own, which need not import TensorFlow: for most test files that takes the longest.

A server imports it and does nothing with it; each run is a fork of the server, and ends as any Python process does.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.processes import patience

ROOT = Path(__file__).resolve().parents[1]


class Server:
    """Runs pytest, one run at a time, in forks of a process with this environment."""

    def __init__(self, environment: dict[str, str]) -> None:
        # Ends with this process, which closes the pipe.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked"],
            cwd=ROOT,
            env=environment,
            bufsize=0,  # so that what has come is seen by select
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(self, arguments: list[str], timeout: float) -> tuple[int, str]:
        """Returns (exit code, negative for a signal; output).

        A run of more seconds, as patience() counts them, is killed, and says so.
        """
        with tempfile.NamedTemporaryFile("r", errors="replace") as output:
            task = {"arguments": arguments, "output": output.name}
            self._process.stdin.write(json.dumps(task).encode() + b"\n")
            self._process.stdin.flush()
            child = self._answer()
            answers = [self._process.stdout]
            late = not any(select.select(answers, [], [], wait)[0] for wait in patience(timeout))
            if late:
                os.kill(child, signal.SIGKILL)
            code = self._answer()
            return code, output.read() + f"\nno end after {timeout} s" * late

    def _answer(self) -> int:
        line = self._process.stdout.readline()
        assert line, f"the server of forks ended with {self._process.wait()}"
        return int(line)


def serve() -> None:
    """Reads a task a line; answers with the process' id, and when it has ended with its exit code."""
    import pytest
    import tensorflow  # noqa: F401 - the forks have it

    for line in sys.stdin:
        task: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            for descriptor, path, mode in (
                (0, os.devnull, os.O_RDONLY),
                (1, task["output"], os.O_WRONLY | os.O_APPEND),
                (2, task["output"], os.O_WRONLY | os.O_APPEND),
            ):
                os.dup2(os.open(path, mode), descriptor)
            sys.exit(pytest.main(task["arguments"]))
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
