"""Forks of a Python process that has imported TensorFlow, which takes longer than most test programs.

A server imports it, Keras, NumPy and pytest, and does nothing with them: no device and no thread of TensorFlow's exists
in it. (OpenBLAS has threads from its import on, and makes them anew in a fork.) A fork runs like Python's command line,
with an environment of its own, and ends as any Python process does. One server serves a run of pytest, its workers, and
the processes that these start.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import fcntl
import gc
import json
import os
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# Where the server of this run listens, its owner, and the arguments it was started with.
VARIABLE = "METAL_OPS_TEST_SERVER"
# Variables that differ in a fork's environment must have these beginnings: libraries read others when they are
# imported.
SET_BY_IMPORT = {"TF2_BEHAVIOR": "1", "ENABLE_RUNTIME_UPTIME_TELEMETRY": "1"}
OF_SHELLS = {"SHLVL", "OLDPWD", "_"}  # which a shell sets anew
READ_LATER = (
    "TF_NUM_INTRAOP_THREADS",  # with the first op
    "TPU_ML_",
    "METAL_",
    "HOSTMETAL_",
    "TF_CONFIG",
    "HOROVOD_",
    "STAND_IN",
    "COLUMNS",
    "LINES",
    "PYTEST_",
    "PATH",
    "PYTHONPATH",
    "PWD",
)


def patience(seconds: float) -> Iterator[float]:
    """Times to wait, one after the other, that make `seconds` of an idle machine.

    Where more processes want a core than there are, a second counts as each one's share of it: limits by the clock
    ended files of tests that were at work, while others compiled.
    """
    cores = os.cpu_count() or 1
    while seconds > 0:
        wait = min(5.0, max(seconds, 0.1))
        yield wait
        seconds -= wait * min(1.0, cores / max(os.getloadavg()[0], 1e-3))


class Fork:
    """A process of a server's."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lines = connection.makefile("r")
        self.pid = int(self._line())
        self.returncode: int | None = None

    def _line(self) -> str:
        line = self._lines.readline()
        if not line:
            raise RuntimeError("the server of forks has ended")
        return line

    def wait(self, timeout: float | None = None) -> int | None:
        """The exit code, negative for a signal; None where it has not ended within so many seconds."""
        if self.returncode is None:
            if timeout is not None and not select.select([self._connection], [], [], timeout)[0]:
                return None
            self.returncode = int(self._line())
            self._connection.close()
        return self.returncode

    def kill(self) -> None:
        if self.wait(0) is None:
            os.kill(self.pid, signal.SIGKILL)


_starting = threading.Lock()


class Server:
    """Forks of one process, side by side."""

    def __init__(self, address: str, environment: Mapping[str, str]) -> None:
        self._address = address
        self._environment = dict(environment)

    @classmethod
    def of_this_run(cls) -> Server:
        """The one that was started before, or one that ends with this process."""
        with _starting:
            return cls._of_this_run()

    @classmethod
    def _of_this_run(cls) -> Server:
        told = json.loads(os.environ.get(VARIABLE, "{}"))
        whose = [sys.executable, str(ROOT)]
        if told.get("whose") == whose and Path(told["address"]).exists():
            return cls(told["address"], told["environment"])
        # Not in a longer folder that TMPDIR may name: an address has at most 108 letters.
        folder = tempfile.TemporaryDirectory(prefix="metal-ops-", dir="/tmp")
        address = f"{folder.name}/server"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen(64)
        environment = {n: v for n, v in os.environ.items() if n != VARIABLE}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked", str(listener.fileno())],
            cwd=ROOT,
            env={**environment, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdin=subprocess.PIPE,  # ends with this process, which closes the pipe
            stdout=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,  # Ctrl-C is for those who started the forks
        )
        listener.close()

        def end(owner: int = os.getpid()) -> None:
            if os.getpid() == owner:  # and no fork of it
                process.stdin.close()
                process.wait()
                folder.cleanup()

        atexit.register(end)
        told = {"address": address, "whose": whose, "environment": environment}
        os.environ[VARIABLE] = json.dumps(told)
        return cls(address, environment)

    def can(self, environment: Mapping[str, str]) -> bool:
        """Whether a fork with this environment is the same as a new process."""
        here, there = ({**SET_BY_IMPORT, **each} for each in (self._environment, environment))
        names = {*here, *there} - {VARIABLE, *OF_SHELLS}
        differ = (name for name in names if here.get(name) != there.get(name))
        level = environment.get("TF_CPP_MIN_LOG_LEVEL", "2")
        return level == "2" and all(
            n.startswith(READ_LATER) or n == "TF_CPP_MIN_LOG_LEVEL" for n in differ
        )

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        stdout: int,
        stderr: int,
        descriptors: Sequence[int] = (),
        cwd: Path = ROOT,
        executable: str = sys.executable,
    ) -> Fork:
        """Python with these arguments: `-c`, `-m` or a script first, no options."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        task = {
            "arguments": [*arguments],
            "environment": dict(environment),
            "descriptors": [*descriptors],
            "cwd": str(cwd),
            "executable": executable,
        }
        text = json.dumps(task).encode()
        head = len(text).to_bytes(8, "little")
        socket.send_fds(connection, [head], [stdout, stderr, *descriptors])
        connection.sendall(text)
        return Fork(connection)

    def run(self, arguments: list[str], timeout: float, **environment: str) -> tuple[int, str]:
        """pytest with these arguments: (exit code, negative for a signal; output).

        A run of more seconds, as patience() counts them, is killed, and says so.
        """
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            file = output.fileno()
            fork = self.start(
                ["-m", "pytest", *arguments], {**os.environ, **environment}, file, file
            )
            late = all(fork.wait(wait) is None for wait in patience(timeout))
            if late:
                fork.kill()
            code = fork.wait()
            output.seek(0)
            return code, output.read() + f"\nno end after {timeout} s" * late


# ---- the server's process --------------------------------------------------------------------------------------------


def serve(listener: socket.socket) -> list[str]:
    """Forks for those who connect; a fork returns from here, with its arguments."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([listener, woken, 0], [], [])
        if woken in ready:
            os.read(woken, 4096)
            while running:
                child, status = os.waitpid(-1, os.WNOHANG)
                if not child:
                    break
                with running.pop(child) as connection:
                    _tell(connection, os.waitstatus_to_exitcode(status))
        if listener in ready:
            connection, _ = listener.accept()
            task, files = _read(connection)
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (listener, connection, *running.values()):
                    each.close()
                os.close(woken)
                os.close(wake)
                _become(task, files)
                return task["arguments"]
            for file in files:
                os.close(file)
            running[child] = connection
            _tell(connection, child)
        if 0 in ready:  # who started the server has ended, or says so
            for child in running:
                os.kill(child, signal.SIGKILL)
            for child in running:
                os.waitpid(child, 0)
            os._exit(0)


def _tell(connection: socket.socket, number: int) -> None:
    try:
        connection.sendall(b"%d\n" % number)
    except OSError:  # no one waits
        pass


def _read(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    head, files, _, _ = socket.recv_fds(connection, 8, 64)
    with connection.makefile("rb") as file:
        return json.loads(file.read(int.from_bytes(head, "little"))), list(files)


def _become(task: dict[str, Any], files: list[int]) -> None:
    """The state of a new Python process, up to its program."""
    # Above all that are wanted, then where they are wanted.
    wanted = [1, 2, *task["descriptors"]]
    above = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, max(wanted) + 100) for file in files]
    for file in files:
        os.close(file)
    for file, number in zip(above, wanted, strict=True):
        os.dup2(file, number)
        os.close(file)
    if 0 not in wanted:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
    os.chdir(task["cwd"])
    sys.executable = task["executable"]
    before = os.environ.get("PYTHONPATH", "")
    os.environ.clear()
    os.environ.update(task["environment"])
    path = os.environ.get("PYTHONPATH", "")
    if path != before:
        sys.path[1:1] = path.split(os.pathsep)
    # Each its own random numbers.
    random.seed()
    numpy.random.seed()


def program(arguments: list[str]) -> None:
    """Runs it as Python's command line would, in a module of its own named __main__."""
    kind, *rest = arguments
    sys.orig_argv = [sys.executable, *arguments]
    sys.modules["__forked__"] = sys.modules["__main__"]  # whose functions are running
    if kind == "-c":
        module = types.ModuleType("__main__")
        module.__builtins__ = builtins
        sys.modules["__main__"] = module
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), module.__dict__)
    elif kind == "-m":
        # "-m" until the module is found, which packages can tell from an import.
        sys.argv, sys.path[0] = ["-m", *rest[1:]], os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = arguments, str(Path(kind).resolve().parent)
        runpy.run_path(kind, run_name="__main__")


# ---- `python` for shells ---------------------------------------------------------------------------------------------


def python_for_shells(folder: Path) -> Path:
    """A folder for PATH whose `python` is a fork, where a fork is what a new process would be.

    Signals reach the fork, except SIGKILL; descriptors above 2 are the fork's as well.
    """
    path = folder / "python"
    path.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -I -S "{Path(__file__).resolve()}" as-python "$0" "$@"\n'
    )
    path.chmod(0o755)
    return folder


def _inherited() -> list[int]:
    """The open descriptors above 2 that came from the parent: Python's own close on exec."""
    found = []
    for number in map(int, os.listdir("/dev/fd")):
        with contextlib.suppress(OSError):  # that of the list itself is closed
            if number > 2 and not fcntl.fcntl(number, fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                found.append(number)
    return found


def as_python(executable: str, arguments: list[str]) -> None:
    """Ends as Python with these arguments does; its `sys.executable` is the file that was started."""
    told = json.loads(os.environ.get(VARIABLE, "{}"))
    if not told or not arguments or (arguments[0][0] == "-" and arguments[0] not in ("-c", "-m")):
        os.execv(sys.executable, [sys.executable, *arguments])
    server = Server(told["address"], told["environment"])
    if not server.can(os.environ):
        os.execv(sys.executable, [sys.executable, *arguments])
    files = [0, *_inherited()]
    fork = server.start(arguments, os.environ, 1, 2, files, Path.cwd(), executable)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(fork.pid, number))
    code = fork.wait() or 0
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__" and sys.argv[1] == "as-python":
    as_python(sys.argv[2], sys.argv[3:])
elif __name__ == "__main__":
    import numpy
    import pytest  # noqa: F401 - the forks have it, and the modules below
    import tensorflow  # noqa: F401

    gc.collect()
    gc.freeze()  # so that the collections of forks, at their ends too, are not all of this
    program(serve(socket.socket(fileno=int(sys.argv[1]))))
