"""Workers that horovodrun starts, with a stand-in for Horovod, which is no requirement: its processes share memory."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from metal_ops import cli
from metal_ops.programs import checkpoint
from metal_ops.programs.cluster import horovod_rank
from metal_ops.programs.errors import ProgramError
from metal_ops.programs.exchange import exchange_from
from metal_ops.programs.launch import use_own_share
from metal_ops.programs.memory import Lines
from tests.processes import Process

# The parts of `horovod.tensorflow` that are used, as Horovod 0.28 has them.
STAND_IN = """
import os
import tensorflow as tf
from metal_ops.programs.memory import Memory

Sum, _memory = "sum", None

def init():
    global _memory
    lines = map(int, os.environ["STAND_IN"].split(","))
    _memory = Memory(size(), rank(), lines, 60)

def size(): return int(os.environ["HOROVOD_SIZE"])
def rank(): return int(os.environ["HOROVOD_RANK"])

def _call(function, values, name):
    assert name
    found = tf.numpy_function(function, [values], values.dtype)
    return tf.ensure_shape(found, [None, *values.shape[1:]])

def allreduce(values, op, name):
    assert op == Sum
    return tf.ensure_shape(_call(_memory.sum, values, name), values.shape)

def allgather(values, name): return _call(_memory.gather, values, name)

def shutdown():
    _memory.close()
    with open(os.environ["STAND_IN_ENDED"] + str(rank()), "w"): pass
"""
TRAIN = "lm train --width 16 --layers 1 --heads 2 --kv-heads 1 --hidden 16 --context 32 --steps 8".split()


def _path() -> list[str]:
    return [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]


def by_horovod(folder, *arguments, count=2):
    """The command in processes as horovodrun starts them, and their results."""
    package = folder / "horovod"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "tensorflow.py").write_text(STAND_IN)
    lines = Lines(count)
    processes = []
    for rank in range(count):
        variables = {f"HOROVOD_{name}": str(rank) for name in ("RANK", "LOCAL_RANK")}
        variables |= {f"HOROVOD_{name}": str(count) for name in ("SIZE", "LOCAL_SIZE")}
        variables["STAND_IN"] = ",".join(map(str, lines.of(rank)))
        variables["STAND_IN_ENDED"] = str(folder / "ended")
        descriptors = lines.of(rank)
        command = "-m", "metal_ops", *map(str, arguments)
        variables["PYTHONPATH"] = os.pathsep.join([str(folder), *_path()])
        processes.append(Process(*command, descriptors=descriptors, **variables))
    lines.close()
    return [process.finish() for process in processes]


def test_equal_to_one_process(tmp_path):
    book = tmp_path / "book.txt"
    book.write_bytes(b"One two, three; four. " * 300)
    options = [*TRAIN, "--data", book, "--runs", tmp_path / "runs"]
    results = by_horovod(tmp_path, *options, "--name", "two", "--batch", 2)
    assert [code for code, *_ in results] == [0, 0], results
    # One of them speaks, and writes.
    assert "2 workers through Horovod" in results[0][1] and results[1][1] == ""
    assert {file.name for file in tmp_path.glob("ended*")} == {"ended0", "ended1"}
    assert cli.main(list(map(str, [*options, "--name", "one", "--batch", 4]))) == 0
    one, two = (checkpoint.load(tmp_path / "runs" / name)[1] for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_allclose(two[name], array, rtol=1e-3, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    "environment, rank",
    [
        ({}, None),
        ({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"}, None),
        ({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"}, 0),
        ({"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}, 1),
        ({"HOROVOD_RANK": "x", "HOROVOD_SIZE": "2"}, None),
    ],
)
def test_ranks(environment, rank):
    assert horovod_rank(environment) == rank


def test_each_has_its_share_of_the_machine():
    found = {"HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "10000", "HOSTMETAL_DEVICE": "cuda"}
    use_own_share(found)
    assert found["HOSTMETAL_DEVICE"] == "cuda:1" and found["TF_NUM_INTRAOP_THREADS"] == "1"
    found = {**found, "HOSTMETAL_DEVICE": "cpu", "TF_NUM_INTRAOP_THREADS": "7"}
    use_own_share(found)
    assert found["HOSTMETAL_DEVICE"] == "cpu" and found["TF_NUM_INTRAOP_THREADS"] == "7"


@pytest.mark.parametrize("program", ["nerf", "lm"])
@pytest.mark.parametrize("how", [["--workers", "2"], []])
def test_who_starts_workers_twice_is_told(program, how, monkeypatch, capsys):
    monkeypatch.setenv("HOROVOD_RANK", "1")
    monkeypatch.setenv("HOROVOD_SIZE", "2")
    if not how:
        monkeypatch.setenv("TF_CONFIG", "{}")
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("ended"))
    assert cli.main([program, "train", *how]) == 2
    assert capsys.readouterr().err == (
        f"{program}: horovodrun has started the workers already; leave out --workers and TF_CONFIG.\n"
    )


def test_without_horovod_a_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", None)
    with pytest.raises(ProgramError, match="horovod.tensorflow cannot be imported .*--workers N"):
        exchange_from({"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"})
