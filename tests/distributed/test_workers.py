"""Workers in processes of their own: equal to one process with all of their rays, deaths, wrong addresses, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import cli
from metal_ops.nerf.config import ModelConfig, TrainConfig
from metal_ops.nerf.scenes.procedural import procedural_scene
from metal_ops.nerf.train import Trainer
from metal_ops.ops.ray_march import RaySamples
from metal_ops.programs import checkpoint
from metal_ops.programs.cluster import local_clusters
from tests.distributed.pairs import start_two
from tests.forked import python_for_shells
from tests.processes import ROOT, Process

SMALL = "--width 16 --layers 1 --heads 2 --kv-heads 1 --hidden 16 --context 32".split()
STEPS, RAYS = 18, 96  # beyond the first update of the occupancy grid
MODEL = ModelConfig(n_levels=4, log2_hashmap_size=14, finest_resolution=128)
TRAIN = TrainConfig(seconds=None, steps=STEPS, target_samples=1024, occupancy_resolution=16)
WORKER = """
import json, os, sys
from metal_ops.programs.cluster import cluster_from
from metal_ops.programs.exchange import Collectives, exchange_from
from metal_ops.programs.workers import Workers
# First: it waits for all, and nothing else runs meanwhile.
by_grpc = Workers(Collectives(cluster_from(os.environ)))
import numpy as np, tensorflow as tf
from tests.distributed import test_workers as test

def train(workers, folder):
    trainer = test.Trainer(test.scene(), test.MODEL, test.TRAIN, workers)
    trainer.agree()
    losses = []
    for _ in range(test.STEPS):
        trainer.n_rays = test.RAYS
        losses.append(trainer.train_step().loss)
    trainer.save(folder / f"{workers.exchange.name}-{workers.rank}.npz")

    # A table of which this worker touched a few rows, then nearly all: the first goes by rows, the second whole.
    mean = tf.function(lambda table, small: workers.mean([small, table], [tf.constant(3.0)], 1))
    found = []
    for part in (16, 1):
        table = np.zeros([4096, 2], np.float32)
        table[workers.rank :: part] = np.arange(1, 3) * (workers.rank + 1)
        (small, shared), numbers, cost = mean(tf.constant(table), tf.constant([[1.0 + workers.rank]]))
        rows = shared.numpy()[:part + 1].tolist()
        found.append([small.numpy().tolist(), rows, numbers.numpy().tolist(), float(cost[0])])
    workers.finish()
    return {"losses": losses, "mean": found, "report": workers.report()}

both = [by_grpc, Workers(exchange_from(os.environ))]
print(json.dumps({w.exchange.name: train(w, test.Path(sys.argv[1])) for w in both}), flush=True)
os._exit(0)
"""


def scene():
    return procedural_scene(size=24, train_views=6, test_views=1, supersample=1)


class Union(Trainer):
    """One process with the rays of two: each half is marched as a worker's, by jitter from its own seed."""

    def gradients(self, origins, directions, background, target, seed, step):
        from metal_ops.nerf import train

        march = train.march
        rank = np.asarray([0x9E3779B1], np.uint32).view(np.int32)[0]  # of worker 1

        def halves(ops, origins, directions, *arguments, seed):
            seeds = seed, tf.stack([seed[0], tf.bitwise.bitwise_xor(seed[1], rank)])
            found = [
                march(ops, o, d, *arguments, seed=s)
                for o, d, s in zip(tf.split(origins, 2), tf.split(directions, 2), seeds, strict=True)
            ]  # fmt: skip
            first = [0, tf.shape(origins)[0] // 2]
            rays = tf.concat([f.ray_indices + n for f, n in zip(found, first, strict=True)], 0)
            return RaySamples(
                *(tf.concat([getattr(f, name) for f in found], 0) for name in ("t_starts", "t_ends")),
                rays,
                ops.pack_ray_indices(rays, tf.shape(origins)[0]),
            )  # fmt: skip

        train.march = halves
        try:
            return super().gradients(origins, directions, background, target, seed, step)
        finally:
            train.march = march


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two workers that trained, each way: their output, and the folder of their checkpoints."""
    folder = tmp_path_factory.mktemp("two")
    return [process.result() for process in start_two(WORKER, folder)], folder


@pytest.fixture(scope="module")
def one():
    """One process with all of their rays, and its losses."""
    trainer, losses = Union(scene(), MODEL, TRAIN), []
    for _ in range(STEPS):
        trainer.n_rays = 2 * RAYS
        losses.append(trainer.train_step().loss)
    return trainer, losses


@pytest.mark.parametrize("way", ["gRPC", "shared memory"])
def test_equal_to_one_process_with_all_rays(way, two, one):
    (results, folder), (trainer, losses) = two, one
    found = [result[way]["losses"] for result in results]
    assert found[0] == found[1]
    np.testing.assert_allclose(found[0], losses, rtol=2e-3)
    np.testing.assert_allclose(found[0][:4], losses[:4], rtol=1e-5)
    (_, first), (_, second) = (checkpoint.load(folder / f"{way}-{rank}.npz") for rank in (0, 1))
    assert first.keys() == second.keys()
    for name, array in first.items():
        # Occupancy grids and moments included.
        np.testing.assert_array_equal(array, second[name], err_msg=name)
    assert np.any(first["occupancy/density"] > 0)
    whole = trainer.occupancy.density.numpy()
    np.testing.assert_allclose(first["occupancy/density"], whole, rtol=0.05, atol=0.05)


def test_of_two_both_ways_give_the_same_bits(two):
    """A sum of two has one order."""
    results, folder = two
    assert results[0]["gRPC"]["losses"] == results[0]["shared memory"]["losses"]
    first, second = (
        checkpoint.load(folder / f"{way}-0.npz")[1] for way in ("gRPC", "shared memory")
    )
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name], err_msg=name)


@pytest.mark.parametrize("way", ["gRPC", "shared memory"])
def test_a_table_goes_by_rows_where_that_is_less(way, two):
    by_rank = [result[way]["mean"] for result in two[0]]
    assert [one[:3] for one in by_rank[0]] == [one[:3] for one in by_rank[1]]
    sparse, dense = by_rank[0]
    assert sparse[0] == dense[0] == [[1.5]] and sparse[2] == dense[2] == [6.0]
    assert sparse[1][:3] == [[0.5, 1.0], [1.0, 2.0], [0.0, 0.0]] and sparse[1][16] == [0.5, 1.0]
    assert dense[1] == [[0.5, 1.0], [1.5, 3.0]]
    if way == "gRPC":
        # A small gradient, a number and two counts, and then rows of 12 bytes, or all of the table.
        few = 4096 // 16
        assert sparse[3] == 4 * 4 + 12 * few and dense[3] == 4 * 4 + 8 * 4096
    else:
        # Always all of it: each writes its own values and half of the result.
        assert sparse[3] == dense[3] == 1.5 * (4 * 2 + 8 * 4096)
    assert 0 < two[0][0][way]["report"]["seconds_between_a_step"] < 60


def lm(*arguments: object) -> list[str]:
    return ["lm", "train", *SMALL, *map(str, arguments)]


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_bytes(b"One two, three; four. " * 300)
    return path


def test_the_language_model_is_equal_to_one_process(book, forks, tmp_path):
    options = ["--data", book, "--steps", 12, "--runs", tmp_path]
    process = Process(*forks, *lm(*options, "--name", "two", "--batch", 2, "--workers", 2))
    assert cli.main(lm(*options, "--name", "one", "--batch", 4)) == 0
    code, out, err = process.finish()
    assert code == 0 and err == "", f"{out}\n{err}"
    # One of them speaks, and writes.
    assert out.count("Text: ") == out.count("Pictures: ") == 1
    assert re.search(
        r"2 workers through shared memory: each sent 0\.0\d MB a step; sending and waiting took [\d.]+ ms",
        out,
    )
    names = {"attention.png", "checkpoint.npz", "loss.png", "metrics.json", "sample.txt"}
    assert {file.name for file in (tmp_path / "two").iterdir()} == names
    one, two = (checkpoint.load(tmp_path / name)[1] for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_allclose(two[name], array, rtol=1e-3, atol=1e-4, err_msg=name)
    metrics = json.loads((tmp_path / "two" / "metrics.json").read_text())
    assert metrics["bytes_seen"] == 12 * 4 * 32 and metrics["workers"]["count"] == 2


@pytest.mark.full(
    "four trainings; the language model's own workers, which share all of this, are part of `make test`"
)
def test_adapters_are_equal_to_those_of_one_process(book, tmp_path):
    base, runs = tmp_path / "base", ["--data", book, "--runs", tmp_path]
    assert cli.main(lm(*runs, "--name", "base", "--steps", 4)) == 0
    options = ["lm", "train", "--adapters", base, *runs, "--context", 32, "--steps", 8, "--rank", 2]
    of_two = [*options, "--name", "two", "--batch", 2, "--workers", 2]
    process = Process("-m", "metal_ops", *map(str, of_two))
    assert cli.main([*map(str, options), "--name", "one", "--batch", "4"]) == 0
    code, out, err = process.finish()
    assert code == 0 and err == "", f"{out}\n{err}"
    assert out.count("Base: ") == 1 and "2 workers through shared memory: each sent 0.0" in out
    files = (np.load(tmp_path / name / "adapter.npz") for name in ("one", "two"))
    with next(files) as one, next(files) as two:
        assert set(one) == set(two)
        for name in one:
            if one[name].dtype == np.float32:
                np.testing.assert_allclose(two[name], one[name], rtol=1e-3, atol=1e-4, err_msg=name)
    metrics = json.loads((tmp_path / "two" / "metrics.json").read_text())
    assert metrics["workers"]["count"] == 2 and metrics["rank"] == 2


# A command whose workers are forks; the told numbers are those of the processes that wait for them.
BY_FORKS = """
import sys
sys.executable = sys.argv.pop(1)
sys.argv[0] = "/metal_ops"  # a program's name: the package imports nothing for it
from metal_ops.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def forks(tmp_path) -> list[str]:
    """How a command begins that has forks for workers."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return ["-c", BY_FORKS, str(python_for_shells(folder) / "python")]


class Running:
    """A command with workers, read line by line."""

    def __init__(
        self, *arguments: object, begin: Sequence[str] = ("-m", "metal_ops"), **variables: str
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *begin, *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = ""

    def until(self, words: str) -> re.Match[str]:
        """Reads on to a line that has them."""
        for line in self.process.stdout:
            self.said += line
            if found := re.search(words, line):
                return found
        raise AssertionError(f"no {words!r} in\n{self.said}\n{self.process.stderr.read()}")

    def finish(self) -> tuple[int, str]:
        try:
            rest, err = self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        self.said += rest
        return self.process.returncode, err


def until_it_is(file: Path) -> None:
    deadline = time.monotonic() + 100
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def memory_of(pid: str) -> list[os.stat_result]:
    """The files that a process of ours shares with other workers."""
    found = []
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        with suppress(FileNotFoundError):  # the process runs on, and closes some meanwhile
            if "metal_ops workers" in os.readlink(link):
                found.append(link.stat())
    return found


def runs(pid: str) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.full("four processes, 150 steps; test_packed_workers.py has a worker that dies")
def test_a_worker_that_dies_returns_and_goes_on(tmp_path):
    run = tmp_path / "a"
    options = "--steps 150 --size 24 --samples 1024 --levels 4 --frames 2 --eval-views 1".split()
    running = Running(
        "nerf", "train", "-o", run, "--workers", 2, "--checkpoint-every", 0.1, *options
    )
    who = running.until(r"Workers: 0 \(process (\d+)\).*, 1 \(process (\d+)\)")
    until_it_is(run / "checkpoint.npz")
    os.kill(int(who[2]), signal.SIGKILL)
    again = running.until("Going on from (.*)")
    assert again[1] == f"{run}."
    others = running.until(r"Workers: 0 \(process (\d+)\).*, 1 \(process (\d+)\)")
    assert not {who[1], who[2]} & {others[1], others[2]}
    code, err = running.finish()
    assert code == 0, f"{running.said}\n{err}"
    assert err == f"nerf: worker 1 (process {who[2]}) was ended by SIGKILL.\n"
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["steps"] == 150 and not metrics["interrupted"]
    # The steps before the death are not taken again.
    assert 0 < metrics["history"][-1]["step"] - metrics["workers"]["steps"] < 150


@pytest.mark.full("six processes; test_a_worker_that_dies_returns_and_goes_on has the way of it")
def test_adapters_of_workers_of_which_one_dies_start_anew(book, tmp_path):
    """Into the folder that they had begun: an adapter's training is not resumed."""
    assert cli.main(lm("--data", book, "-o", tmp_path / "base", "--steps", 2)) == 0
    run = tmp_path / "a"
    options = ["--adapters", tmp_path / "base", "--data", book, "--batch", 2, "--context", 32]
    running = Running(
        *[
            "lm",
            "train",
            *options,
            "-o",
            run,
            "--steps",
            60,
            "--workers",
            2,
            "--checkpoint-every",
            0.1,
        ]  # fmt: skip
    )
    who = running.until(r"Workers: 0 \(process (\d+)\).*, 1 \(process (\d+)\)")
    until_it_is(run / "adapter.npz")
    os.kill(int(who[2]), signal.SIGKILL)
    code, err = running.finish()
    assert code == 0 and err == f"lm: worker 1 (process {who[2]}) was ended by SIGKILL.\n", err
    assert "Going on from the start." in running.said
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["steps"] == metrics["workers"]["steps"] == 60


@pytest.mark.full("six processes; test_a_worker_that_dies_returns_and_goes_on has the way of it")
def test_a_worker_of_another_machine_that_dies_returns(book, tmp_path):
    """As on two machines: each has its own process that watches, and gradients go by gRPC."""
    run = tmp_path / "a"
    options = ["-o", run, "--checkpoint-every", 0.1, "--steps", 150, "--batch", 2, "--data", book]
    clusters = local_clusters(2)
    chief, other = (Running(*lm(*options), TF_CONFIG=c.to_json()) for c in clusters)
    who = other.until(r"Worker: 1 \(process (\d+)\)")
    until_it_is(run / "checkpoint.npz")
    os.kill(int(who[1]), signal.SIGKILL)
    code, err = other.finish()
    assert code == 0 and err == f"lm: worker 1 (process {who[1]}) was ended by SIGKILL.\n"
    assert "Going on from the start." in other.said  # its state is the chief's
    code, err = chief.finish()
    assert code == 0 and re.fullmatch(r"lm: a worker is gone, or has not .*\n", err), err
    assert f"Going on from {run}." in chief.said and "2 workers through gRPC" in chief.said
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["steps"] == 150 > metrics["workers"]["steps"] > 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at descriptors in /proc")
def test_nothing_is_left_where_some_are_killed(book, tmp_path):
    running = Running(*lm("-o", tmp_path / "a", "--workers", 2, "--data", book, "--seconds", 1000))
    who = running.until(r"Workers: 0 \(process (\d+)\).*, 1 \(process (\d+)\)")
    (first,), (second,) = memory_of(who[1]), memory_of(who[2])
    # No name anywhere: the system takes it back with the last of them. An observer has none of it.
    assert first.st_ino == second.st_ino and first.st_nlink == 0
    assert memory_of(str(running.process.pid)) == []
    running.until("step +[1-9]")
    running.process.kill()
    os.kill(int(who[2]), signal.SIGKILL)
    deadline = time.monotonic() + 60
    while runs(who[1]) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not runs(who[1])


def test_ctrl_c_stops_all_together(book, forks, tmp_path):
    run = tmp_path / "a"
    options = ["-o", run, "--workers", 2, "--data", book, "--seconds", 1000, "--batch", 2]
    running = Running(*lm(*options), begin=forks)
    running.until("step +[1-9]")
    running.process.send_signal(signal.SIGINT)
    code, err = running.finish()
    assert code == 130 and err == "", f"{running.said}\n{err}"
    assert "Stopped; writing the checkpoint" in running.said
    assert json.loads((run / "metrics.json").read_text())["interrupted"]
    assert checkpoint.load(run)[0]["step"] > 0


def test_a_wrong_address_is_a_sentence_after_a_bounded_wait(book, tmp_path):
    cluster = local_clusters(2)[0]
    options = ["-o", tmp_path / "a", "--data", book, "--steps", 3, "--wait", 1.5]
    running = Running(*lm(*options), TF_CONFIG=cluster.to_json())
    begin = time.monotonic()
    code, err = running.finish()
    assert code == 2 and time.monotonic() - begin < 90
    assert err == (
        f"lm: worker 0 has waited 1.5 s, and there is no answer at {cluster.addresses[1]}; start the other workers, "
        "correct their addresses in TF_CONFIG, or give more time by --wait.\n"
    )
    assert not (tmp_path / "a").exists()


def test_a_mistake_is_said_once(book, forks, tmp_path):
    options = ["-o", tmp_path / "a", "--workers", 2, "--data", tmp_path / "nowhere.txt"]
    running = Running(*lm(*options), begin=forks)
    code, err = running.finish()
    assert code == 2 and err.startswith("lm: ") and len(err.splitlines()) == 1, err
    assert "nowhere.txt: no such file" in err
