"""What the files in on_device/ rely on: a run in a fork says how it ended, whatever happened in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.forked import Server
from tests.processes import Process, patience

ENDS = {
    "def test(): pass": 0,
    "def test(): assert 1 == 2": 1,
    "": 5,
    "import os\ndef test(): os.abort()": -6,
    "import atexit, os\natexit.register(os._exit, 3)\ndef test(): pass": 3,
    "import tensorflow as tf\ndef test(): assert tf.reduce_sum(tf.ones([3])).numpy() == 3": 0,
}


@pytest.fixture(scope="module")
def server() -> Server:
    return Server({**os.environ, "IN_THE_FORK": "1"})


@pytest.mark.parametrize("text, code", ENDS.items())
def test_how_a_run_ended(text: str, code: int, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(text)
    assert server.run(["-q", "-p", "no:cacheprovider", str(file)], 120)[0] == code


def test_what_it_said_and_where_it_ran(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(
        "import os\ndef test(): assert 0, (os.getpid(), os.environ['IN_THE_FORK'], 'said')"
    )
    outputs = [server.run(["-q", "-p", "no:cacheprovider", str(file)], 120)[1] for _ in range(2)]
    assert all("'1', 'said')" in output for output in outputs)
    assert str(os.getpid()) not in outputs[0]


def test_one_that_does_not_end_is_killed(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text("import time\ndef test():\n    time.sleep(100)")
    code, output = server.run(["-q", "-p", "no:cacheprovider", str(file)], 0.5)
    assert code == -9 and output.endswith("no end after 0.5 s")


def test_a_process_that_does_not_end_is_killed() -> None:
    process = Process("-c", "print('began', flush=True); import time; time.sleep(100)")
    with pytest.raises(AssertionError, match="no end after 2 s\nbegan"):
        process.finish(timeout=2)
    assert process._process.returncode == -9


@pytest.mark.parametrize("wanting, share", [(0, 1), (0.5, 1), (1, 1), (4, 4), (40, 40)])
def test_a_busy_machine_is_waited_for(
    wanting: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four processes that want a core, each takes four times as long."""
    monkeypatch.setattr(os, "getloadavg", lambda: (wanting * os.cpu_count(), 0.0, 0.0))
    waits = list(patience(20))
    assert max(waits) <= 5 and sum(waits) == pytest.approx(20 * share, rel=0.1)
