"""Habits that all programs share: mistakes before TensorFlow is imported, runs of other programs, locks, signals, a
full disk."""

from __future__ import annotations

import gc
import io
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from metal_ops import cli
from metal_ops.programs import checkpoint, command, telling
from metal_ops.programs.errors import CheckpointError, OutputError, ProgramError
from metal_ops.programs.files import atomic, locked
from metal_ops.programs.interrupts import stop_on_interrupt
from tests.processes import ROOT

pytestmark = pytest.mark.programs

# (arguments, the last line of the answer)
MISTAKES = [
    ("nerf train --data none", "none: no such file or folder."),
    ("nerf train --resume none", "none: no such checkpoint; `train` makes one."),
    ("nerf eval none", "none: no such checkpoint; `train` makes one."),
    ("nerf render none", "none: no such checkpoint; `train` makes one."),
    ("nerf compare --data none", "none: no such file or folder."),
    ("image fit none.png", "none.png: no such picture; give a PNG, JPEG, PPM or .npy file."),
    ("image fit --resume none", "none: no such checkpoint; `fit` makes one."),
    ("image eval none", "none: no such checkpoint; `fit` makes one."),
    ("image render none", "none: no such checkpoint; `fit` makes one."),
    ("sdf train none.obj", "none.obj: no such mesh."),
    ("sdf train --resume none", "none: no such checkpoint; `train` makes one."),
    ("sdf eval none", "none: no such checkpoint; `train` makes one."),
    ("sdf mesh none", "none: no such checkpoint; `train` makes one."),
    ("sdf render none", "none: no such checkpoint; `train` makes one."),
    ("lm train --data none", "none: no such file; give a file of text by --data."),
    ("lm train --resume none", "none: no such checkpoint; `train` makes one."),
    (
        "lm train --adapters none",
        "none: no such base for --adapters; give the folder of a run, or a model's file.",
    ),
    ("lm generate none", "none: no such checkpoint; `train` makes one."),
    ("lm chat none", "none: no such checkpoint; `train` makes one."),
    (
        "lm generate --model none",
        "none: no such model; give a .gguf, a .safetensors or a folder.",
    ),
    ("image fit .", ": is a folder; give a PNG, JPEG, PPM or .npy file."),
    (
        "image fit --name link",
        "runs/link: is a link to nowhere, which is not there; make that folder, or give another --name.",
    ),
    ("nerf train -o .", "`python -m metal_ops nerf train --help` lists the options."),
    # Left-over arguments were given to that command.
    ("nerf train scene", "`python -m metal_ops nerf train --help` lists the options."),
    ("lm generate run --zzz", "`python -m metal_ops lm generate --help` lists the options."),
    ("sdf eval run other", "`python -m metal_ops sdf eval --help` lists the options."),
    ("nerf eval run --views x", "`python -m metal_ops nerf eval --help` lists the options."),
]
# Runs each of the commands in a process in which importing TensorFlow is an error.
WITHOUT_TENSORFLOW = """
import sys
sys.modules["tensorflow"] = None
from metal_ops.cli import main
for line in sys.stdin.read().splitlines():
    try:
        code = main(line.split())
    except SystemExit as end:
        code = end.code
    print("exit code", code, file=sys.stderr)
"""


def test_mistakes_are_told_before_tensorflow_is_imported(tmp_path):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to("nowhere")
    script = tmp_path / "metal_ops"  # a program's name: the package imports nothing for it
    script.write_text(WITHOUT_TENSORFLOW)
    ended = subprocess.run(
        [sys.executable, script],
        input="\n".join(arguments for arguments, _ in MISTAKES),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    answers = ended.stderr.split("exit code 2\n")
    assert len(answers) == len(MISTAKES) + 1 and answers[-1] == "", ended.stderr[-2000:]
    for (arguments, expected), answer in zip(MISTAKES, answers, strict=False):
        lines = answer.splitlines()
        assert lines[-1].endswith(expected) and len(lines) <= 2, (arguments, answer)


def test_the_script_is_the_module():
    script = Path(sys.executable).with_name("metal_ops")
    said = [
        subprocess.run([*program, "--version"], capture_output=True, text=True, check=True).stdout
        for program in ([script], [sys.executable, "-m", "metal_ops"])
    ]
    assert said[0] == said[1] and said[0].startswith("metal_ops ")


def test_the_first_line_comes_before_tensorflow(tmp_path):
    """Its import takes seconds; here it is an error."""
    script = tmp_path / "metal_ops"
    script.write_text(
        WITHOUT_TENSORFLOW.replace(
            "    except SystemExit as end:\n",
            "    except (SystemExit, ImportError) as end:\n        ",
        ).replace("code = end.code", "code = type(end).__name__")
    )
    (tmp_path / "text").write_text("a line of a text\n" * 2000)
    lines = [
        "nerf train",
        "nerf compare",
        "image fit",
        "sdf train",
        "lm train --data text --context 64",
    ]
    ended = subprocess.run(
        [sys.executable, script],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    )
    assert ended.stdout.count("Loading TensorFlow.\n") == len(lines), ended.stdout + ended.stderr
    assert ended.stderr == "exit code ModuleNotFoundError\n" * len(lines)


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def in_a_file() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, markup=False)


def test_progress_in_a_file(monkeypatch):
    """The first line after two seconds, the others five seconds apart, and none when all is done."""
    clock, console = Clock(), in_a_file()
    monkeypatch.setattr(telling, "time", clock)
    with telling.told(console, "turntable", 20, "frames") as step:
        for _ in range(20):
            clock.now += 0.9
            step()
    with telling.phase(console, "drawing [it]"):
        pass
    assert console.file.getvalue().splitlines() == [
        "turntable: 3 of 20 frames",
        "turntable: 9 of 20 frames",
        "turntable: 15 of 20 frames",
        "Drawing [it].",
    ]


def test_progress_in_a_terminal():
    console = Console(file=io.StringIO(), force_terminal=True, width=60)
    with telling.told(console, "turntable", 20, "frames") as step:
        step()
    assert "turntable" in console.file.getvalue() and "of 20 frames" in console.file.getvalue()


def test_the_time_in_all(monkeypatch):
    clock, console = Clock(), in_a_file()
    monkeypatch.setattr(telling, "time", clock)
    whole = telling.Whole(console, 20.0)  # a run that goes on
    whole.begin(60.0)
    clock.now = 7.0
    whole.expect(0.5, 10.0, 3.0)  # 10 s of training are left
    whole.expect(0.6, 14.0, 3.0)
    clock.now = 22.6
    assert whole.words(60.0) == "60.0 s of training, 23 s in all"
    assert console.file.getvalue().splitlines() == [
        "Training for 40 s; measuring and pictures come on top.",
        "About 20 s in all.",
    ]


FILLS = """
import sys
sys.argv[0] = "/metal_ops"  # a program's name: the package imports nothing for it
from argparse import Namespace
from metal_ops.programs.command import console_for_people, guarded
def command(arguments):
    console_for_people().print("a line")
    return 0
sys.exit(guarded("lm", command)(Namespace()))
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux that is always full")
def test_output_on_a_full_disk():
    with open("/dev/full", "w") as full:
        ended = subprocess.run(
            [sys.executable, "-c", FILLS],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        )
    assert ended.stderr == "lm: the output cannot be written (No space left on device).\n"
    assert ended.returncode == 2


SCRIPT = """
import re, sys
from metal_ops.cli import hostmetal
sys.exit(hostmetal())
"""


def test_the_script_hostmetal(tmp_path):
    """It has the commands for Metal alone, and TensorFlow is not imported for them."""
    script = tmp_path / "hostmetal"  # as pip names it, which the package looks at
    script.write_text("import sys\nsys.modules['tensorflow'] = None\n" + SCRIPT)
    (tmp_path / "a.metal").write_text(
        "kernel void a(device float* x [[buffer(0)]]) { x[0] = 1; }\n"
    )

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        command = [sys.executable, str(script), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment
        )

    helped = run("--help").stdout
    assert helped.startswith("usage: hostmetal ")
    names = re.findall(r"^    (\w+) ", helped, re.M)
    assert names == list(cli.HOSTMETAL) and "python -m metal_ops" not in helped
    assert run("metal", "a.metal", "-o", "a.metallib").returncode == 0
    assert (tmp_path / "a.metallib").stat().st_size > 0
    wrong = run("nerf", "train")
    assert wrong.returncode == 2 and "`hostmetal --help` lists the options." in wrong.stderr
    assert 'hostmetal = "metal_ops.cli:hostmetal"' in (ROOT / "pyproject.toml").read_text()


def saved(folder: Path, program: str) -> Path:
    checkpoint.save(folder / checkpoint.FILE_NAME, program, {"step": 1}, {"a": np.ones(3)})
    return folder


@pytest.mark.parametrize(
    "line, program",
    [("lm generate", "nerf"), ("nerf eval", "image"), ("image render", "sdf"), ("sdf mesh", "lm")],
)
def test_a_run_of_another_program(tmp_path, capsys, line, program):
    folder = saved(tmp_path, program)
    assert cli.main([*line.split(), str(folder)]) == 2
    own = line.split()[0]
    assert (
        f"{folder}: expected a run of `{own}`, got one of '{program}'; give another folder, or use "
        f"`python -m metal_ops {program}`." in capsys.readouterr().err
    )


def test_a_run_of_this_program(tmp_path):
    header, arrays, _ = checkpoint.load_run(saved(tmp_path, "lm"), "lm")
    assert header["program"] == "lm" and arrays["a"].sum() == 3
    with pytest.raises(CheckpointError, match="expected a run of `nerf`"):
        checkpoint.load_run(tmp_path, "nerf")


# ---- the folder of a run ---------------------------------------------------------------------------------------------

HOLDS = """
import sys
from pathlib import Path
sys.argv[0] = "/metal_ops"  # a program's name: the package imports nothing for it
from metal_ops.programs.files import locked
with locked(Path(sys.stdin.readline().strip())):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_run_has_one_writer(tmp_path):
    folder = tmp_path / "runs" / "a"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
    ) as other:
        assert other.stdin and other.stdout
        other.stdin.write(f"{folder}\n")
        other.stdin.flush()
        assert other.stdout.readline() == "held\n"
        said = f"{folder}: another process is writing this run; wait for its end, or give another --name."
        with pytest.raises(ProgramError) as refused, locked(folder):
            pass
        assert str(refused.value) == said
        other.kill()  # a lock ends with its process, however that ends
    with locked(folder):
        (folder / "file").touch()
    assert (folder / "file").exists()


def test_a_folder_without_files_is_not_left(tmp_path):
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "run"):
        raise ZeroDivisionError
    assert not (tmp_path / "run").exists()


# ---- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_ask_for_an_end(number):
    with stop_on_interrupt() as stop:
        signal.raise_signal(number)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_before_the_training(number):
    assert threading.current_thread() is threading.main_thread()
    with pytest.raises(KeyboardInterrupt), command.terminated_as_interrupted():
        signal.raise_signal(number)


def test_nohup(monkeypatch):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_interrupt() as stop, command.terminated_as_interrupted():
            signal.raise_signal(signal.SIGHUP)
        assert not stop()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    """A limit of the size of files stands for the disk: the same system call fails."""
    complaints: list[object] = []  # "Exception ignored in", with a traceback
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    path = saved(tmp_path, "lm") / checkpoint.FILE_NAME
    before = path.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limit[1]))
    try:
        with pytest.raises(OutputError, match="cannot be written .*; make room"):
            checkpoint.save(path, "lm", {"step": 2}, {"a": np.ones(1 << 16)})
        with pytest.raises(OutputError), atomic(tmp_path / "a.txt") as temporary:
            temporary.write_bytes(bytes(1 << 17))
        gc.collect()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert path.read_bytes() == before and not complaints
    assert [file.name for file in tmp_path.iterdir()] == [checkpoint.FILE_NAME]
