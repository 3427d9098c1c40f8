"""Training: it learns, it is reproducible, it resumes to the same bits, and Ctrl-C leaves the present state."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from metal_ops.nerf.config import ModelConfig, TrainConfig
from metal_ops.nerf.evaluate import Renderer, evaluate
from metal_ops.nerf.run import Evaluations
from metal_ops.nerf.scenes import Scene, Views, load_scene
from metal_ops.nerf.scenes.box import place_box
from metal_ops.nerf.scenes.procedural import render_view, ring_cameras
from metal_ops.nerf.scenes.procedural import still_life as solids
from metal_ops.nerf.space import Space
from metal_ops.nerf.train import Trainer
from metal_ops.programs import checkpoint
from metal_ops.programs.errors import CheckpointError, ProgramError
from tests.suites import at_depth

from . import scenes_on_disk as disk

SMALL = ModelConfig(n_levels=8, log2_hashmap_size=14, finest_resolution=128)
QUICK = TrainConfig(seconds=None, steps=40, target_samples=2048, occupancy_resolution=32)


def trained(scene, model=SMALL, config=QUICK, steps: int | None = None) -> Trainer:
    trainer = Trainer(scene, model, config)
    for _ in range(steps if steps is not None else config.steps):
        trainer.train_step()
    return trainer


def score(trainer: Trainer) -> float:
    return evaluate(renderer_of(trainer), trainer.scene.test, trainer.scene.background, 3).mean_psnr


@functools.lru_cache(1)
def renderer_of(trainer: Trainer) -> Renderer:
    """One for both scores of a trainer: it follows the variables."""
    return trainer.renderer()


def test_a_small_run_learns(still_life):
    """240 steps on 48x48 pictures; 23.7 dB were seen, a model that learns colour only reaches 15."""
    trainer = trained(still_life, config=dataclasses.replace(QUICK, steps=240, target_samples=8192))
    result = evaluate(trainer.renderer(), trainer.scene.test, trainer.scene.background, 3)
    assert result.mean_psnr > 22.5 and result.mean_ssim > 0.85
    # Empty space was found, and rays became cheaper.
    allowed = float(np.mean(trainer.occupancy.density.numpy() >= 0))
    assert 0 < trainer.occupancy.occupied_fraction() < 0.8 * allowed
    assert 0.6 < trainer.samples_seen / trainer.step / 8192 < 1.2


def by_panoramas(scene: Scene) -> Scene:
    """The still life from a ring of panoramas, in the box that files without one get: it holds the cameras."""
    cameras = ring_cameras("equirectangular", 12, 0.0, 24)
    images = np.stack([render_view(solids(), cameras, view, 1) for view in range(12)])
    views = Views(tuple(map(str, range(12))), images, cameras)
    poses = cameras.poses.astype(np.float64)
    _, space, _ = place_box(poses, np.zeros([0, 3]), True, True, "toy")
    return dataclasses.replace(scene, train=views, space=space)


def in_a_small_box(scene: Scene) -> Scene:
    return dataclasses.replace(
        scene, space=Space(scene.space.aabb / 2, extent=4.0, near=scene.space.near)
    )


@pytest.mark.parametrize("change", [by_panoramas, in_a_small_box])
def test_silhouettes_bound_what_is_unbounded(still_life, change):
    """Opaque fog up to the end of the space hides random backgrounds, and learns nothing: a loss of 1 / 12."""
    scene = change(still_life)
    assert scene.space.contracted and scene.has_alpha
    trainer = Trainer(scene, SMALL, QUICK)
    assert trainer.scene.space.contracted == (change is in_a_small_box)
    losses = [trainer.train_step().loss for _ in range(QUICK.steps)]
    assert np.mean(losses[-10:]) < 0.05
    if change is by_panoramas:
        box = trainer.scene.space.aabb
        assert 2.1 < (box[1] - box[0])[0] < 3.4  # the plinth is 2.1 wide, and a pixel 0.3
    else:
        allowed = trainer.occupancy.density.numpy() >= 0
        assert (allowed.mean(axis=1) < [0.8, 0.5, 0.4]).all() and allowed[1:].any()


KINDS = {
    # The gain of 80 steps when this was written, less a third.
    "composite": (dataclasses.replace(SMALL, backend="composite"), 1.0),
    "mixed precision": (dataclasses.replace(SMALL, mixed_precision=True), 1.0),
    "frequency": (ModelConfig(encoding="frequency", frequency_width=64, frequency_depth=4), 0.4),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_learns(still_life, kind):
    model, gain = KINDS[kind]
    trainer = Trainer(still_life, model, dataclasses.replace(QUICK, steps=80))
    for _ in range(5):
        trainer.train_step()
    before = score(trainer)
    while not trainer.done:
        trainer.train_step()
    assert score(trainer) > before + gain


def test_composite_and_fused_learn_the_same(still_life):
    """The first steps agree up to the rounding of the sums; after that training is chaotic."""
    fused, composite = (
        Trainer(still_life, dataclasses.replace(SMALL, backend=backend), QUICK)
        for backend in ("fused", "composite")
    )
    for _ in range(4):
        losses = [trainer.train_step().loss for trainer in (fused, composite)]
        np.testing.assert_allclose(*losses, rtol=1e-3)


def arrays_of(trainer: Trainer, path: Path) -> dict[str, np.ndarray]:
    trainer.save(path)
    return checkpoint.load(path)[1]


def assert_same_bits(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    assert first.keys() == second.keys() and len(first) > 15
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_same_seed_same_bits_and_resume(still_life, tmp_path):
    """36 steps with a checkpoint on the way, as many without, and the last 19 from the checkpoint."""
    first = trained(still_life, steps=17)
    first.save(tmp_path / "part.npz")
    at_17 = {name: getattr(first.occupancy, name).numpy() for name in ("density", "bits")}
    for _ in range(19):
        first.train_step()
    whole = arrays_of(first, tmp_path / "whole.npz")
    assert_same_bits(whole, arrays_of(trained(still_life, steps=36), tmp_path / "again.npz"))
    rest = Trainer(still_life, SMALL, QUICK)
    untouched, table = rest.occupancy.density.numpy(), rest.field.table.numpy()
    rest.load(*checkpoint.load(tmp_path / "part.npz"), "part.npz")
    assert rest.step == 17
    # The occupancy grid is part of it: step 16's updates of it are not made again.
    for name, saved in at_17.items():
        np.testing.assert_array_equal(saved, getattr(rest.occupancy, name).numpy())
    assert np.any(rest.occupancy.density.numpy() != untouched)
    for _ in range(19):
        rest.train_step()
    assert_same_bits(whole, arrays_of(rest, tmp_path / "rest.npz"))
    other = Trainer(still_life, SMALL, dataclasses.replace(QUICK, seed=1))
    assert np.any(other.field.table.numpy() != table)


def test_a_checkpoint_of_another_model_is_refused(still_life, tmp_path):
    Trainer(still_life, SMALL, QUICK).save(tmp_path / "a.npz")
    larger = Trainer(still_life, dataclasses.replace(SMALL, log2_hashmap_size=15), QUICK)
    with pytest.raises(CheckpointError, match="'model/table' has shape"):
        larger.load(*checkpoint.load(tmp_path / "a.npz"), "a.npz")


def test_learning_rate_follows_the_budget(still_life):
    trainer = Trainer(still_life, SMALL, TrainConfig(seconds=10.0, steps=100))
    rates = []
    for seconds, step in ((0, 0), (4, 0), (0, 40), (7, 0), (10, 0)):
        trainer.seconds, trainer.step = seconds, step
        rates.append(trainer.scheduled_learning_rate())
    assert rates[0] == rates[1] == rates[2] == 1e-2
    assert rates[3] == pytest.approx(1e-2 * trainer.config.final_learning_rate**0.5)
    assert rates[4] == pytest.approx(1e-2 * trainer.config.final_learning_rate) and trainer.done


def test_random_background_needs_alpha(still_life):
    opaque = dataclasses.replace(still_life, has_alpha=False)
    with pytest.raises(ProgramError, match="--background random"):
        Trainer(opaque, SMALL, dataclasses.replace(QUICK, background="random"))


def test_photographs_learn(still_life, tmp_path):
    """instant-ngp's format without alpha, an unbounded box and a distorted lens, end to end."""
    folder = disk.instant_ngp(tmp_path / "photos", still_life.train, k1=0.01, aabb_scale=4)
    scene = load_scene(folder)
    trainer = Trainer(scene, SMALL, QUICK)
    before = score(trainer)
    for _ in range(60):
        trainer.train_step()
    assert trainer.scene.space.contracted and score(trainer) > before + 2


def test_evaluations_grow_apart():
    due = Evaluations(0.0, first=2.0, growth=1.5)
    times = [t / 10 for t in range(100) if due.due(t / 10) and (due.passed(t / 10) or True)]
    assert times == [2.0, 3.0, 4.5, 6.8]
    assert not Evaluations(5.0).due(5.1)


def test_progress_is_shown_in_a_terminal(still_life):
    import io

    from rich.console import Console

    from metal_ops.nerf.run import Bar

    output = io.StringIO()
    trainer = Trainer(still_life, SMALL, QUICK)
    with Bar(Console(file=output, force_terminal=True, width=140), "toy") as bar:
        bar.step(trainer, trainer.train_step(), (0.0, 0))
        bar.score(trainer, 12.34)
    text = output.getvalue()
    for part in ("toy", "step 1", "loss", "12.34 dB", "rays/s", "left"):
        assert part in text


def test_gradient_scaling_changes_no_bit(still_life):
    """A power of two, and float32 has exponents to spare: float16's need is none here."""
    first, scaled, tripled = (
        Trainer(still_life, SMALL, dataclasses.replace(QUICK, gradient_scale=scale))
        for scale in (1.0, 128.0, 3.0)
    )
    for _ in range(10):
        losses = [trainer.train_step().loss for trainer in (first, scaled, tripled)]
        assert losses[0] == losses[1] and losses[2] == pytest.approx(losses[0], rel=0.01)
    np.testing.assert_array_equal(first.field.table, scaled.field.table)
    assert np.any(tripled.field.table.numpy() != first.field.table.numpy())  # it is used


def test_occupancy_is_updated_when_it_should_be(still_life):
    """Every 16 steps, each time from another seed; with 0 the visual hull stays as it is."""
    for every, expected in at_depth([(5, 8), (0, 0)], [(16, 2), (5, 8), (0, 0)]):
        trainer = Trainer(
            still_life, SMALL, dataclasses.replace(QUICK, occupancy_every=every, steps=40)
        )
        before, changes = trainer.occupancy.density.numpy(), 0
        while not trainer.done:
            trainer.train_step()
            after = trainer.occupancy.density.numpy()
            changes += bool(np.any(before != after))
            before = after
        assert changes == expected


def test_epsilon_reaches_adam(still_life):
    trainer = Trainer(still_life, SMALL, dataclasses.replace(QUICK, epsilon=1e-8))
    assert trainer.optimizer.epsilon == 1e-8
    assert Trainer(still_life, SMALL, QUICK).optimizer.epsilon == 1e-15


def test_step_is_traced_once(still_life):
    """The number of rays and samples changes all the time; a retrace each time would take seconds."""
    trainer = trained(still_life, steps=20)
    assert trainer._train.experimental_get_tracing_count() == 1
    assert trainer._look.experimental_get_tracing_count() == 1
    assert tf.executing_eagerly()
