"""Workers in processes of their own: equal to one process with all of their rays, deaths, wrong addresses, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
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
from metal_ops.programs.launch import environment
from tests.processes import ROOT, Process

SMALL = "--width 16 --layers 1 --heads 2 --kv-heads 1 --hidden 16 --context 32".split()
STEPS, RAYS = 18, 96  # beyond the first update of the occupancy grid
MODEL = ModelConfig(n_levels=4, log2_hashmap_size=14, finest_resolution=128)
TRAIN = TrainConfig(seconds=None, steps=STEPS, target_samples=1024, occupancy_resolution=16)
WORKER = """
import json, os, sys
from metal_ops.programs.cluster import cluster_from
from metal_ops.programs.workers import Workers
workers = Workers(cluster_from(os.environ))
import numpy as np, tensorflow as tf
from tests.distributed import test_workers as test
trainer = test.Trainer(test.scene(), test.MODEL, test.TRAIN, workers)
trainer.agree()
losses = []
for _ in range(test.STEPS):
    trainer.n_rays = test.RAYS
    losses.append(trainer.train_step().loss)
trainer.save(test.Path(sys.argv[1]) / f"{workers.rank}.npz")

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
print(json.dumps({"losses": losses, "mean": found, "report": workers.report()}), flush=True)
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
    """Two workers that trained: what they printed, and the folder of their checkpoints."""
    folder = tmp_path_factory.mktemp("two")
    processes = [
        Process("-c", WORKER, str(folder), **environment(cluster, folder, True))
        for cluster in local_clusters(2)
    ]
    return [process.result() for process in processes], folder


def test_equal_to_one_process_with_all_rays(two):
    results, folder = two
    one = Union(scene(), MODEL, TRAIN)
    losses = []
    for _ in range(STEPS):
        one.n_rays = 2 * RAYS
        losses.append(one.train_step().loss)
    assert results[0]["losses"] == results[1]["losses"]
    np.testing.assert_allclose(results[0]["losses"], losses, rtol=2e-3)
    np.testing.assert_allclose(results[0]["losses"][:4], losses[:4], rtol=1e-5)
    (_, first), (_, second) = (checkpoint.load(folder / f"{rank}.npz") for rank in (0, 1))
    assert first.keys() == second.keys()
    for name, array in first.items():
        # Occupancy grids and moments included.
        np.testing.assert_array_equal(array, second[name], err_msg=name)
    assert np.any(first["occupancy/density"] > 0)
    whole = one.occupancy.density.numpy()
    np.testing.assert_allclose(first["occupancy/density"], whole, rtol=0.05, atol=0.05)


def test_a_table_goes_by_rows_where_that_is_less(two):
    by_rank = [result["mean"] for result in two[0]]
    assert [one[:3] for one in by_rank[0]] == [one[:3] for one in by_rank[1]]
    sparse, dense = by_rank[0]
    assert sparse[0] == dense[0] == [[1.5]] and sparse[2] == dense[2] == [6.0]
    assert sparse[1][:3] == [[0.5, 1.0], [1.0, 2.0], [0.0, 0.0]] and sparse[1][16] == [0.5, 1.0]
    assert dense[1] == [[0.5, 1.0], [1.5, 3.0]]
    # A small gradient, a number and two counts, and then rows of 12 bytes, or all of the table.
    few = 4096 // 16
    assert sparse[3] == 4 * 4 + 12 * few and dense[3] == 4 * 4 + 8 * 4096
    assert 0 < two[0][0]["report"]["seconds_between_a_step"] < 60


def lm(*arguments: object) -> list[str]:
    return ["lm", "train", *SMALL, *map(str, arguments)]


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_bytes(b"One two, three; four. " * 300)
    return path


def test_the_language_model_is_equal_to_one_process(book, tmp_path):
    options = ["--data", book, "--steps", 12, "--runs", tmp_path]
    process = Process(
        "-m", "metal_ops", *lm(*options, "--name", "two", "--batch", 2, "--workers", 2)
    )
    assert cli.main(lm(*options, "--name", "one", "--batch", 4)) == 0
    code, out, err = process.finish()
    assert code == 0 and err == "", f"{out}\n{err}"
    # One of them speaks, and writes.
    assert out.count("Text: ") == out.count("Pictures: ") == 1
    assert re.search(
        r"2 workers: each sent 0\.0\d MB a step; sending and waiting took [\d.]+ ms", out
    )
    names = {"attention.png", "checkpoint.npz", "loss.png", "metrics.json", "sample.txt"}
    assert {file.name for file in (tmp_path / "two").iterdir()} == names
    one, two = (checkpoint.load(tmp_path / name)[1] for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_allclose(two[name], array, rtol=1e-3, atol=1e-4, err_msg=name)
    metrics = json.loads((tmp_path / "two" / "metrics.json").read_text())
    assert metrics["bytes_seen"] == 12 * 4 * 32 and metrics["workers"]["count"] == 2


class Running:
    """A command with workers, read line by line."""

    def __init__(self, *arguments: object, **variables: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "metal_ops", *map(str, arguments)],
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


@pytest.mark.parametrize("program", ["nerf", "lm"])
def test_a_worker_that_dies_returns_and_goes_on(program, book, tmp_path):
    run = tmp_path / "a"
    options = ["-o", run, "--workers", 2, "--checkpoint-every", 0.1, "--steps", 150]
    if program == "nerf":
        options += [
            "--size",
            24,
            "--samples",
            1024,
            "--levels",
            4,
            "--frames",
            2,
            "--eval-views",
            1,
        ]
    else:
        options += [*SMALL, "--batch", 2, "--data", book]
    running = Running(program, "train", *options)
    who = running.until(r"Workers: 0 \(process (\d+)\).*, 1 \(process (\d+)\)")
    deadline = time.monotonic() + 100
    while not (run / "checkpoint.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(int(who[2]), signal.SIGKILL)
    again = running.until("Going on from (.*)")
    assert again[1] == f"{run}."
    others = running.until(r"Workers: 0 \(process (\d+)\).*, 1 \(process (\d+)\)")
    assert not {who[1], who[2]} & {others[1], others[2]}
    code, err = running.finish()
    assert code == 0, f"{running.said}\n{err}"
    assert err == f"{program}: worker 1 (process {who[2]}) was ended by SIGKILL.\n"
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["steps"] == 150 and not metrics["interrupted"]
    # The steps before the death are not taken again.
    assert 0 < metrics["history"][-1]["step"] - metrics["workers"]["steps"] < 150


def test_ctrl_c_stops_all_together(book, tmp_path):
    run = tmp_path / "a"
    running = Running(
        *lm("-o", run, "--workers", 2, "--data", book, "--seconds", 1000, "--batch", 2)
    )
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
        f"lm: worker 0 has waited 1.5 s, and nobody answers at {cluster.addresses[1]}; start the other workers, "
        "correct their addresses in TF_CONFIG, or give more time by --wait.\n"
    )
    assert not (tmp_path / "a").exists()


def test_a_mistake_is_said_once(book, tmp_path):
    running = Running(*lm("-o", tmp_path / "a", "--workers", 2, "--data", tmp_path / "nowhere.txt"))
    code, err = running.finish()
    assert code == 2 and err.startswith("lm: ") and len(err.splitlines()) == 1, err
    assert "nowhere.txt: no such file" in err
