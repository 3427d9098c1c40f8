"""Packed steps of workers, by either way: equal to one process with all of their rays."""

from __future__ import annotations

import json
import signal
import time

import numpy as np
import pytest

from metal_ops.nerf import train as nerf_train
from metal_ops.nerf.config import ModelConfig, TrainConfig
from metal_ops.nerf.scenes.procedural import procedural_scene
from metal_ops.nerf.train import Trainer
from metal_ops.programs import checkpoint
from tests.distributed.pairs import start_two
from tests.processes import Process

STEPS, RAYS = 34, 64
LATE_AT, LATE_BY = 20, 2.5  # the other worker comes late to a step that is not checked, in seconds
LOOKS_TOGETHER = 16  # in place of 64 steps: at cells, and then each worker does alone
MODEL = ModelConfig(n_levels=4, log2_hashmap_size=10, finest_resolution=64)
# Room for the samples of all rays, also of twice as many.
TRAIN = TrainConfig(
    seconds=None, steps=STEPS, target_samples=8192, occupancy_resolution=16, packed=True
)
WAYS = {"memory of their devices": True, "shared memory": False}
HEAD = """
import json, os, sys
from pathlib import Path
import metal_ops
metal_ops.device.load()
from tests.distributed.test_packed_workers import *
"""
WORKER = (
    HEAD
    + """
import signal
from metal_ops.programs.exchange import LostWorker, exchange_from
from metal_ops.programs.workers import Workers
workers, said = Workers(exchange_from(os.environ)), {}
for way, one_machine in WAYS.items():
    workers.exchange.one_machine = one_machine
    workers.through = workers.exchange.name
    losses, took = train(workers, 1, Path(sys.argv[1]) / f"{way}-{workers.rank}.npz")
    said[way] = [losses, workers.words(), took]

# A worker that does not come: in place of minutes, devices wait for a moment.
from metal_ops.nerf import packed_exchange
packed_exchange._POLLS = {True: 1000, False: 1000}
workers.exchange.one_machine = True
trainer = new_trainer(workers)
packed_exchange._POLLS = {True: 1 << 23, False: 1 << 27}  # seconds, once a worker is dead
if workers.chief:
    trainer._seen, trainer.step = (0.1, 1), LATE_AT
    file = Path(sys.argv[1]) / "alone.npz"
    steps(trainer, 2)
    try:
        trainer.save(file)
    except LostWorker as error:
        said["alone"] = [str(error), file.exists()]
workers.barrier()

# The chief alone has what was saved; all go on from there, until one dies.
trainer = new_trainer(workers)
if workers.chief:
    trainer.load(*checkpoint.load(Path(sys.argv[1]) / f"{way}-0.npz"), "")
    trainer.n_slots = 12345
trainer.agree()
said["again"] = [trainer.step, trainer.n_rays, trainer.n_slots]
said["losses"] = [steps(trainer, 1) for _ in range(3)]
if workers.rank:
    print(json.dumps(said), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    steps(trainer, 100)
except LostWorker as error:
    said["lost"] = str(error)
print(json.dumps(said), flush=True)
os._exit(0)
"""
)
ONE = (
    HEAD
    + """
file = Path(sys.argv[1]) / "one.npz"
(losses, _), again = train(None, 2, file), new_trainer(None)
again.load(*checkpoint.load(file), "")
print(json.dumps([losses, [steps(again, 1), again.step]]))
"""
)


def new_trainer(workers):
    import tensorflow as tf

    nerf_train._LOOK_EVERYWHERE = LOOKS_TOGETHER
    scene = procedural_scene(size=24, train_views=6, test_views=1, supersample=1)
    with tf.device("GPU:0"):
        return Trainer(scene, MODEL, TRAIN, workers)


def steps(trainer, count):
    """The loss of the last of so many steps."""
    import tensorflow as tf

    with tf.device("GPU:0"):
        for _ in range(count):
            trainer.train_step()
    return trainer._seen[0]


def train(workers, times, file):
    """The last seen losses of steps with so many times the rays of a worker, and how long the host took for one."""
    trainer, losses, took = new_trainer(workers), [], 0.0
    trainer.agree()
    for step in range(STEPS):
        trainer.n_rays, trainer.n_slots = times * RAYS, 1 << 15
        if step == LATE_AT and workers is not None and not workers.chief:
            time.sleep(LATE_BY)
        begun = time.monotonic()
        losses.append(steps(trainer, 1))
        if step == LATE_AT:
            took = time.monotonic() - begun
    trainer.save(file)
    return losses, took


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The output of two workers and of one process, and the folder of their checkpoints."""
    folder = tmp_path_factory.mktemp("packed")
    workers = start_two(WORKER, folder)
    one = Process("-c", ONE, str(folder))
    ended = [process.finish() for process in workers]
    codes = [code for code, _, _ in ended]
    assert codes == [0, -signal.SIGKILL], "\n".join(err for _, _, err in ended)
    return [json.loads(out.splitlines()[-1]) for _, out, _ in ended], one.result(), folder


@pytest.mark.parametrize("way", WAYS)
def test_equal_to_one_process_with_all_rays(ran, way):
    both, (one, _), folder = ran
    losses, words, _ = both[0][way]
    assert losses == both[1][way][0] and f"2 workers through {way}: each sent" in words
    np.testing.assert_allclose(losses[:6], one[:6], rtol=1e-5)
    looked_at = [*range(16), 31]  # by one process, and by those whose hosts do not wait
    np.testing.assert_allclose(np.take(losses, looked_at), np.take(one, looked_at), rtol=0.02)
    first, second = (checkpoint.load(folder / f"{way}-{rank}.npz")[1] for rank in (0, 1))
    for name, array in first.items():
        # Occupancy grids, of which each worker has looked at all, and moments included.
        np.testing.assert_array_equal(array, second[name], err_msg=name)
    whole = checkpoint.load(folder / "one.npz")[1]
    assert first.keys() == whole.keys() and np.any(first["occupancy/density"] > 0)
    for name in first:
        if name.startswith("occupancy/density"):
            np.testing.assert_allclose(first[name], whole[name], rtol=0.1, atol=0.1)


def test_both_ways_give_the_same_losses(ran):
    """A sum of two has one order; the order of a table's gradient differs, which threads add up."""
    by_device, by_host = (ran[0][0][way][0] for way in WAYS)
    np.testing.assert_allclose(by_device[:6], by_host[:6], rtol=1e-5)


def test_hosts_go_ahead_where_devices_wait(ran):
    """The chief has encoded a step, and has the others' gradients of it all the same (above)."""
    by_device, by_host = (ran[0][0][way][2] for way in WAYS)
    assert by_device < LATE_BY / 2 < LATE_BY <= by_host + 1


def test_a_device_gives_up(ran):
    """Nothing of such a step is saved."""
    why, saved = ran[0][0]["alone"]
    assert "its gradients have not come" in why and not saved


def test_all_go_on_from_the_chiefs_checkpoint_until_one_dies(ran):
    chief, other = ran[0]
    assert chief["again"] == other["again"] == [STEPS, RAYS, 12345]
    assert chief["losses"] == other["losses"] and 0 < chief["losses"][-1] < 0.1
    assert "a worker is gone" in chief["lost"]


def test_one_process_goes_on_from_a_checkpoint(ran):
    """Between two looks at the needs of steps: the loss of the first step is seen."""
    loss, step = ran[1][1]
    assert step == STEPS + 1 and 0 < loss < 0.1
