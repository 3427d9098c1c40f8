"""Packed steps (`packed.py`): the gradients and pictures of the general path, without a wait on the device."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from metal_ops.nerf.packed import MARCH_PARAMS
from tests.processes import Process

ROOT = Path(__file__).resolve().parents[2]

# Shared by both: a scene, and a trainer on the device.
SETUP = """
import dataclasses, json, sys
import numpy as np
import tensorflow as tf
from metal_ops import device
from metal_ops.nerf.config import ModelConfig, TrainConfig
from metal_ops.nerf.launches import Graph, Launches, Sizes
from metal_ops.nerf.packed import PackedField
from metal_ops.nerf.scenes.procedural import procedural_scene
from metal_ops.nerf.train import Trainer
device.load()
scene = procedural_scene(size=32, train_views=5, test_views=2, supersample=1)
MODEL = ModelConfig(n_levels=6, log2_hashmap_size=12)
TRAIN = TrainConfig(seconds=None, steps=400, target_samples=4096, occupancy_resolution=32)
def trained(steps, model=MODEL, **changes):
    trainer = Trainer(scene, model, dataclasses.replace(TRAIN, **changes))
    for _ in range(steps):
        trainer.train_step()
    return trainer
"""

# One step's rays, by the shader that draws them; its gradients, kept; the general path's for the same rays.
GRADIENTS = (
    SETUP
    + """
def compare(trainer, dtype, sizes, background, seed):
    found = {v.ref(): tf.Variable(tf.zeros_like(v)) for v in trainer._variables}
    rays = {name: tf.Variable(tf.zeros([sizes.rays, 3])) for name in ("origins", "directions", "target", "background")}
    def keep(gradients, variables, number, rate):
        for gradient, variable in zip(gradients, variables, strict=True):
            found[variable.ref()].assign(gradient)
    trainer._apply = keep
    trainer.config = dataclasses.replace(trainer.config, background=background)
    training = trainer._make_packed_step(PackedField(trainer.field, dtype), None)
    plain = Launches.__call__
    def spy(self, function, grid, inputs, params, outputs, threadgroup=0):
        results = plain(self, function, grid, inputs, params, outputs, threadgroup)
        if function == "packed_draw":
            for (name, _, _), value in zip(outputs, results, strict=True):
                rays[name].assign(value)
        return results
    Launches.__call__ = spy
    totals = training(sizes, seed, 300, 0.01)
    Launches.__call__ = plain
    loss, gradients, n = trainer.gradients(
        rays["origins"].value(), rays["directions"].value(), rays["background"].value(), rays["target"].value(),
        tf.constant([seed ^ 0x55555555, 300]), tf.constant(300))
    errors = {}
    for variable, wanted in zip(trainer._variables, gradients, strict=True):
        wanted, got = tf.convert_to_tensor(wanted).numpy(), found[variable.ref()].numpy()
        errors[variable.name] = float(np.linalg.norm(got - wanted) / np.linalg.norm(wanted))
    return {"errors": errors, "loss": [float(totals.loss), float(loss)], "kept": totals.kept.numpy().tolist(),
            "marched": totals.marched.numpy().tolist(), "n": int(n),
            "target": rays["target"].numpy().tolist(), "directions": rays["directions"].numpy().tolist()}
"""
)
CASES = {
    # Networks' dtype, background, largest relative error of a gradient in the median of the batches.
    "float32": ("float32", "random", 5e-4),
    "float16": ("float16", "random", 2e-2),
    "float32, white": ("float32", "white", 5e-4),
}
SEEDS = (7, 8, 9, 10, 11)


@pytest.fixture(scope="module")
def compared():
    program = GRADIENTS + (
        "with tf.device('GPU:0'):\n"
        "    trainer = trained(60, packed=False)\n"
        "    trainer.occupancy.bits.assign(tf.ones_like(trainer.occupancy.bits) * 255)\n"
        f"    print(json.dumps({{name: [compare(trainer, tf.as_dtype(dtype), "
        f"Sizes(100, 20000, 20000), background, seed)"
        f" for seed in {SEEDS}]\n"
        f"        for name, (dtype, background, _) in {CASES!r}.items()}}))\n"
    )
    return Process("-c", program).result()


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_the_general_path(compared, case):
    """All rays found room, so that both have seen the same ones.

    One value at the edge of its ReLU, which rounding has on either side, is 1e-4 to 6e-3 of a batch's gradients in
    its layer and the ones before it, and those behind it agree to 5e-6; most batches have none that weighs.
    """
    most = CASES[case][2]
    for found in compared[case]:
        assert found["kept"][0] == found["kept"][1] > 500
        # A sample may be at the edge of the hidden part, too.
        assert found["n"] == pytest.approx(found["kept"][1], rel=1e-3)
        assert found["marched"][1] > found["kept"][1]  # something was hidden
        assert found["loss"][0] == pytest.approx(found["loss"][1], rel=most)
        assert max(found["errors"].values()) < 100 * most, found["errors"]
    for name in compared[case][0]["errors"]:
        errors = [found["errors"][name] for found in compared[case]]
        assert np.median(errors) < most, (name, errors)


def test_rays_are_of_unit_length_and_of_pixels(compared):
    found = compared["float32, white"][0]
    np.testing.assert_allclose(np.linalg.norm(found["directions"], axis=1), 1, rtol=1e-6)
    target = np.asarray(found["target"])
    assert (target >= 0).all() and (target <= 1).all() and target.std() > 0.1


# Steps, looks at cells and pictures; where their ops ran, and the tensors that came back to the host.
RUN = (
    SETUP
    + """
from tests.placements import copied_to_host, functions, where
from metal_ops.nerf.packed_training import occupied_bits
with tf.device("GPU:0"):
    with functions() as called:
        trainer = trained(100, packed=True, target_samples=8192)
        first = trainer._seen[0]
        picture = trainer.renderer()(scene.test.cameras, 0)
    general = Trainer(scene, MODEL, dataclasses.replace(TRAIN, packed=False))
    for variable, value in zip(general._variables, trainer._variables, strict=True):
        variable.assign(value)
    general.occupancy.density.assign(trainer.occupancy.density)
    general.occupancy.bits.assign(trainer.occupancy.bits)
    same = general.renderer()(scene.test.cameras, 0)
    lost = trained(3, packed=True, target_samples=64)
    # Nothing is left in the middle two, of which the first may be filled again.
    grid, bits = trainer.occupancy, []
    plain = grid.density.numpy()
    some = np.random.default_rng(1).exponential(grid.threshold, plain.shape).astype(np.float32)
    some[plain < 0] = -1
    graph = Graph(lambda run: occupied_bits(run, grid))
    for density in (some, np.where(plain < 0, plain, 0.0), np.full_like(plain, -1.0), 100 * np.abs(some), 1e-3 * some):
        grid.density.assign(density)
        quick = graph(Sizes(1, 1, 1)).numpy()
        grid.set_bits()
        bits.append([int((quick != grid.bits.numpy()).sum()), int(np.unpackbits(quick).sum())])
def of(kernel):
    return next(nodes for nodes in called if any(node.name.startswith(kernel) for node in nodes))
print(json.dumps({
    "placed": {op: sorted(devices) for op, devices in where(node for nodes in called for node in nodes).items()},
    "copied": {kernel: copied_to_host(of(kernel)) for kernel in ("packed_loss", "packed_cells")},
    "copied_by_all": [name for nodes in called for name in copied_to_host(nodes)], "bits": bits,
    "loss": first, "rays": trainer.n_rays, "occupied": trainer.occupancy.occupied_fraction(),
    "allowed": float(np.mean(trainer.occupancy.density.numpy() >= 0)),
    "apart": [float(np.abs(a - b).max()) for a, b in zip(picture, same, strict=True)],
    "opacity": float(picture.opacity.mean()), "lost": [lost._seen[0], lost._seen[1]],
}))
"""
)


@pytest.fixture(scope="module")
def ran():
    return Process("-c", RUN).result()


def test_steps_run_on_the_device(ran):
    """Every op with work to do; the host has numbers, and the ops that look at all cells in the first steps."""
    placed = ran["placed"]
    for op in (
        "MetalKernel",
        "HashEncode",
        "HashEncodeGrad",
        "FusedMlp",
        "FusedMlpGrad",
        "ResourceFusedAdam",
    ):
        assert placed[op] == ["GPU:0"], op
    assert not {"RayMarch", "VolumeRender", "PackRayIndices"} & placed.keys()


def test_steps_copy_nothing_to_the_host(ran):
    """Neither a step nor a look at the cells; the loss is a result, which the host asks for when it shows it."""
    assert ran["copied"] == {"packed_loss": [], "packed_cells": []}
    # The control: the looks of the first steps, which the general path has, do.
    assert ran["copied_by_all"]


def test_cells_are_occupied_as_on_the_general_path(ran):
    assert [different for different, _ in ran["bits"]] == [0] * 5
    # All that may be, none, some.
    some, refilled, none, opaque, thin = (n for _, n in ran["bits"])
    assert 0 < some < refilled < opaque and none == 0 and 0 < thin < refilled


def test_march_params_are_those_of_the_shaders():
    header = (ROOT / "kernels/ray_march/ray_march_params.h").read_text()
    body = re.search(r"struct RayMarchParams \{(.*?)\};", header, re.DOTALL)[1]
    kinds = {"float": "float32", "int32_t": "int32", "uint32_t": "uint32"}
    declared = re.findall(r"^  (\w+) (\w+)(?:\[(\d+)\])?;", body, re.MULTILINE)
    assert len(declared) == body.count(";")
    fields = [
        (name, kinds[kind], (int(length),)) if length else (name, kinds[kind])
        for kind, name, length in declared
    ]
    assert np.dtype(fields) == MARCH_PARAMS and MARCH_PARAMS.itemsize == 64


def test_it_learns_and_finds_empty_space(ran):
    assert 0 < ran["loss"] < 0.03  # 0.1 at the start
    assert 0 < ran["occupied"] < ran["allowed"]


def test_pictures_are_those_of_the_general_path(ran):
    """Light below 1e-4 is left out on one side, weights below 1e-4 on the other."""
    colour, opacity, depth = ran["apart"]
    assert ran["opacity"] > 0.1 and max(colour, opacity) < 5e-3 and depth < 2e-2


def test_rays_without_room_are_left_out(ran):
    """64 slots hold a few rays' samples; the others count for nothing."""
    loss, samples = ran["lost"]
    assert 0 < samples <= 64 and np.isfinite(loss)


def test_what_cannot_be_packed_says_so():
    program = SETUP + (
        "from metal_ops.programs.errors import ProgramError\n"
        "try:\n    Trainer(scene, MODEL, dataclasses.replace(TRAIN, packed=True, distortion=0.1))\n"
        "except ProgramError as error:\n    print(json.dumps(str(error)))\n"
    )
    assert "leave 'packed' out" in Process("-c", program).result()
