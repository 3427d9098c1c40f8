"""The files in on_device/ rely on this: a run in a fork says how it ended, whatever happened in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import Fork, Server, python_for_shells
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
    return Server.of_this_run()


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
    options = ["-q", "-p", "no:cacheprovider", str(file)]
    outputs = [server.run(options, 120, IN_THE_FORK="1")[1] for _ in range(2)]
    assert all("'1', 'said')" in output for output in outputs)
    assert str(os.getpid()) not in outputs[0]


def test_one_that_does_not_end_is_killed(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text("import time\ndef test():\n    time.sleep(100)")
    code, output = server.run(["-q", "-p", "no:cacheprovider", str(file)], 0.5)
    assert code == -9 and output.endswith("no end after 0.5 s")


# A command that starts Python: that is a fork, too.
STARTS = """
import subprocess, sys
sys.exit(subprocess.call([sys.executable, "-c", "import sys; print('tensorflow' in sys.modules)"]))
"""


@pytest.mark.parametrize(
    "command, code, said",
    [
        ("python -c 'import sys; print(sys.argv, __name__)' a b", 0, "['-c', 'a', 'b'] __main__\n"),
        ("echo '[1,  2]' | python -m json.tool --compact", 0, "[1,2]\n"),
        ("python -c 'import sys; print(\"tensorflow\" in sys.modules)'", 0, "True\n"),
        ("TF_ENABLE_ONEDNN_OPTS=0 python -c 'import sys; print(\"tensorflow\" in sys.modules)'", 0, "False\n"),
        ("SHLVL=7 OLDPWD=/ python -c 'import sys; print(\"tensorflow\" in sys.modules)'", 0, "True\n"),
        ("python -c \"$METAL_OPS_TEST_TEXT\"", 0, "True\n"),
        ("python -c 'import os; os.write(7, b\"seven\")' 7>&1", 0, "seven"),
        ("python - <<< 'print(1 + 1)'", 0, "2\n"),
        ("python -c 'raise SystemExit(3)'", 3, ""),
        ("cd / && python -c 'import os; print(os.getcwd())'", 0, "/\n"),
        ("python -c 'import os; os.abort()'", 134, ""),
        ("timeout -s INT 2 python -c 'import time; time.sleep(60)' 2>/dev/null", 124, ""),
    ],
)  # fmt: skip
def test_python_for_shells(
    command: str, code: int, said: str, server: Server, tmp_path: Path
) -> None:
    path = f"{python_for_shells(tmp_path)}:{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}" if "|" not in command else command],
        env={**os.environ, "PATH": path, "METAL_OPS_TEST_TEXT": STARTS},
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (code, said)


# Both kinds of processes say the same; `forked` says which it is.
SAYS = """
import json, os, sys
print(json.dumps([sys.argv, __name__, os.environ["COLUMNS"], "METAL_OPS_DEVICE" in os.environ]))
sys.stderr.write("error")
os.write(%d, b"line")
sys.exit(3)
"""


@pytest.mark.parametrize("fresh", [False, True])
def test_a_process_is_as_python_starts_it(fresh: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METAL_OPS_DEVICE", "1")
    reads, writes = os.pipe()
    process = Process("-c", SAYS % writes, "a", "b c", descriptors=[writes], fresh=fresh)
    code, out, err = process.finish()
    assert (code, err) == (3, "error")
    assert json.loads(out) == [["-c", "a", "b c"], "__main__", "200", False]
    assert os.read(reads, 10) == b"line"
    assert isinstance(process._process, Fork) != fresh
    for each in (reads, writes):
        os.close(each)


def test_scripts_and_modules_of_a_fork(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'beside'")
    script = tmp_path / "script.py"
    script.write_text("import sys, beside; print(sys.argv[1:], beside.WORD, __file__)")
    code, out, err = Process(str(script), "a").finish()
    assert (code, out) == (0, f"['a'] beside {script}\n"), err
    assert Process("-m", "json.tool", "--help").finish()[1].startswith("usage: ")


@pytest.mark.parametrize(
    "variables, forked",
    [
        ({}, True),
        ({"METAL_OPS_SIMD": "emu128"}, True),
        ({"TF_ENABLE_ONEDNN_OPTS": "0"}, False),
        ({"TF_CPP_MIN_LOG_LEVEL": "0"}, False),
        ({"GLIBC_TUNABLES": ""}, False),
    ],
)
def test_what_is_read_on_import_wants_a_new_process(
    variables: dict[str, str], forked: bool, server: Server
) -> None:
    assert server.can({**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **variables}) == forked


@pytest.mark.skipif(sys.platform != "linux", reason="looks at threads in /proc")
def test_nothing_of_tensorflow_runs_in_the_server() -> None:
    """A fork has none of its parent's threads. OpenBLAS ends its own before, and makes them anew."""
    count = "import os; print(len(os.listdir(f'/proc/{os.getppid()}/task')))"
    assert int(Process("-c", count).finish()[1]) == 1


def test_a_process_that_does_not_end_is_killed() -> None:
    process = Process("-c", "print('began', flush=True); import time; time.sleep(100)")
    with pytest.raises(AssertionError, match="no end after 2 s\nbegan"):
        process.finish(timeout=2)
    assert process.returncode == -9


@pytest.mark.parametrize("wanting, share", [(0, 1), (0.5, 1), (1, 1), (4, 4), (40, 40)])
def test_a_busy_machine_is_waited_for(
    wanting: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four processes that want a core each take four times as long."""
    monkeypatch.setattr(os, "getloadavg", lambda: (wanting * os.cpu_count(), 0.0, 0.0))
    waits = list(patience(20))
    assert max(waits) <= 5 and sum(waits) == pytest.approx(20 * share, rel=0.1)
