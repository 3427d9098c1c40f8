"""Training: it learns, it is reproducible, it resumes to the same bits, and Ctrl-C leaves what there is."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from metal_ops import cli
from metal_ops.nerf import checkpoint
from metal_ops.nerf.compare import compare_run, contenders_from
from metal_ops.nerf.config import ModelConfig, TrainConfig
from metal_ops.nerf.errors import CheckpointError, NerfError
from metal_ops.nerf.evaluate import evaluate
from metal_ops.nerf.run import Evaluations
from metal_ops.nerf.scenes import load_scene
from metal_ops.nerf.train import Trainer

from . import scenes_on_disk as disk

SMALL = ModelConfig(n_levels=8, log2_hashmap_size=14, finest_resolution=128)
QUICK = TrainConfig(seconds=None, steps=40, target_samples=2048, occupancy_resolution=32)


def trained(scene, model=SMALL, config=QUICK, steps: int | None = None) -> Trainer:
    trainer = Trainer(scene, model, config)
    for _ in range(steps if steps is not None else config.steps):
        trainer.train_step()
    return trainer


def score(trainer: Trainer) -> float:
    result = evaluate(trainer.renderer(), trainer.scene.test, trainer.scene.background, 3)
    return result.mean_psnr


def test_a_small_run_learns(still_life):
    """240 steps on 48x48 pictures; 23.7 dB were seen, a model that learns colour only reaches 15."""
    trainer = trained(still_life, config=dataclasses.replace(QUICK, steps=240, target_samples=8192))
    result = evaluate(trainer.renderer(), trainer.scene.test, trainer.scene.background, 3)
    assert result.mean_psnr > 22.5 and result.mean_ssim > 0.85
    # Empty space was found, and rays became cheaper.
    allowed = float(np.mean(trainer.occupancy.density.numpy() >= 0))
    assert 0 < trainer.occupancy.occupied_fraction() < 0.8 * allowed
    assert 0.6 < trainer.samples_seen / trainer.step / 8192 < 1.2


KINDS = {
    # What 80 steps gained when this was written, less a third.
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
        trained(still_life, dataclasses.replace(SMALL, backend=backend), steps=3)
        for backend in ("fused", "composite")
    )
    np.testing.assert_allclose(score(fused), score(composite), atol=0.05)


def arrays_of(trainer: Trainer, path: Path) -> dict[str, np.ndarray]:
    trainer.save(path)
    return checkpoint.load(path)[1]


def assert_same_bits(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> None:
    assert first.keys() == second.keys() and len(first) > 15
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_same_seed_same_bits_and_resume(still_life, tmp_path):
    """40 steps at once, the same again, and 17 + 23 with a checkpoint in between."""
    whole = arrays_of(trained(still_life), tmp_path / "whole.npz")
    assert_same_bits(whole, arrays_of(trained(still_life), tmp_path / "again.npz"))
    trained(still_life, steps=17).save(tmp_path / "part.npz")
    rest = Trainer(still_life, SMALL, QUICK)
    rest.load(*checkpoint.load(tmp_path / "part.npz"), "part.npz")
    assert rest.step == 17
    for _ in range(23):
        rest.train_step()
    assert_same_bits(whole, arrays_of(rest, tmp_path / "rest.npz"))
    other = trained(still_life, config=dataclasses.replace(QUICK, seed=1))
    assert np.any(whole["model/table"] != arrays_of(other, tmp_path / "other.npz")["model/table"])


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
    with pytest.raises(NerfError, match="--background random"):
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


# ---- the program ----------------------------------------------------------------------------------------------------

OPTIONS = (
    "--size 32 --levels 4 --log2-hashmap-size 10 --samples 1024 --frames 2 --eval-views 3".split()
)


def nerf(*arguments: object) -> int:
    return cli.main(["nerf", *map(str, arguments)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """The folder of a run of 12 steps."""
    runs = tmp_path_factory.mktemp("runs")
    assert nerf("train", *OPTIONS, "--steps", 12, "--runs", runs, "--name", "toy") == 0
    return runs / "toy"


def test_a_run_leaves_its_files(finished):
    names = {"checkpoint.npz", "comparison.png", "metrics.json", "psnr.png", "turntable.gif"}
    assert {file.name for file in finished.iterdir()} == names
    metrics = json.loads((finished / "metrics.json").read_text())
    assert (
        metrics["steps"] == 12 and metrics["scene"] == "still_life" and not metrics["interrupted"]
    )
    assert metrics["psnr"] == pytest.approx(
        np.mean([view["psnr"] for view in metrics["views"]]), abs=1e-4
    )
    assert len(metrics["views"]) == 3 and 0 < metrics["ssim"] < 1
    assert metrics["history"][-1]["seconds"] == pytest.approx(metrics["training_seconds"])
    assert "evaluation" in metrics["training_seconds_are"]
    with Image.open(finished / "turntable.gif") as gif:
        assert gif.n_frames == 2 and gif.size == (200, 200)
    for name in ("comparison.png", "psnr.png"):
        with Image.open(finished / name) as picture:
            assert np.asarray(picture.convert("L")).std() > 5  # not blank


def test_the_last_line_says_where_the_pictures_are(tmp_path, capsys):
    assert nerf("train", *OPTIONS, "--steps", 1, "--runs", tmp_path) == 0
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert str(tmp_path / "still_life" / "comparison.png") in last


def test_eval_and_render(finished, tmp_path, capsys):
    assert nerf("eval", finished, "--views", 2) == 0
    report = json.loads((finished / "eval.json").read_text())
    assert len(report["views"]) == 2 and "mean" in capsys.readouterr().out
    (finished / "eval.json").unlink()
    assert nerf("render", finished, "--frames", 3, "--size", 24, "--out", tmp_path / "t.gif") == 0
    with Image.open(tmp_path / "t.gif") as gif:
        assert gif.n_frames == 3 and gif.size == (24, 24)
    assert nerf("render", finished, "--what", "views", "--out", tmp_path / "views") == 0
    pictures = sorted((tmp_path / "views").iterdir())
    assert len(pictures) == 12 and Image.open(pictures[0]).mode == "RGBA"


def test_resume_goes_on_and_refuses_a_used_up_budget(finished, tmp_path, capsys):
    import shutil

    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    assert nerf("train", "--resume", folder) == 2
    assert "used up its budget (12 steps" in capsys.readouterr().err
    assert nerf("train", "--resume", folder, "--steps", 15, "--frames", 2) == 0
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["steps"] == 15 and len(metrics["history"]) >= 2


def test_compare_draws_both_curves(still_life, tmp_path):
    from rich.console import Console

    models = contenders_from(SMALL, None, ["fused", "composite"])
    config = dataclasses.replace(QUICK, seconds=2.5, steps=None)
    code = compare_run(
        still_life, models, config, tmp_path, {}, Console(quiet=True), until_psnr=14.0
    )
    content = json.loads((tmp_path / "metrics.json").read_text())
    assert set(content["contenders"]) == {"fused", "composite"}
    for result in content["contenders"].values():
        assert result["history"] and result["steps"] > 0
    reached = all(r["seconds_to_psnr"] is not None for r in content["contenders"].values())
    assert code == (0 if reached else 1) and content["contenders"]["fused"]["seconds_to_psnr"]
    assert {"psnr.png", "comparison-fused.png", "comparison-composite.png"} <= {
        file.name for file in tmp_path.iterdir()
    }


BAD_COMMANDS = {
    "no such data": (
        ["train", "--data", "/nowhere/at/all"],
        "/nowhere/at/all: no such file or folder",
    ),
    "no such run": (["eval", "/nowhere/run"], "no such checkpoint"),
    "resume nothing": (["train", "--resume", "/nowhere/run"], "no such checkpoint"),
    "background without alpha": (
        ["train", "--data", "{tiny}", "--background", "random"],
        "needs images with alpha",
    ),
    "bad downscale": (
        ["train", "--data", "{tiny}", "--downscale", "7"],
        "not a multiple of the downscale factor 7",
    ),
}


@pytest.mark.parametrize("case", BAD_COMMANDS)
def test_mistakes_are_one_sentence_and_leave_nothing(case, tmp_path, capsys, still_life):
    arguments, expected = BAD_COMMANDS[case]
    tiny = disk.tiny(tmp_path / "tiny.npz", still_life)
    runs = tmp_path / "runs"
    extra = ["--runs", runs] if arguments[0] == "train" else []
    assert nerf(*[argument.format(tiny=tiny) for argument in arguments], *extra) == 2
    error = capsys.readouterr().err
    assert expected in error and error.count("\n") == 1
    assert not runs.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--seconds", "-3"],
        ["train", "--steps", "0"],
        ["train", "--seconds", "inf"],
        ["train", "--name", "../x"],
        ["train", "--encoding", "fourier"],
        ["train", "--samples", "many"],
        ["compare", "--encodings", "hash", "--backends", "fused"],
        [],
    ],
    ids=" ".join,
)
def test_bad_options_exit_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        nerf(*arguments)
    assert caught.value.code == 2 and "error:" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["train"], ["eval"], ["render"], ["compare"]])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        nerf(*command, "--help")
    assert caught.value.code == 0 and "usage:" in capsys.readouterr().out


def test_an_existing_run_is_not_replaced(finished, capsys):
    before = (finished / "checkpoint.npz").read_bytes()
    assert nerf("train", *OPTIONS, "--steps", 1, "--runs", finished.parent, "--name", "toy") == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (finished / "checkpoint.npz").read_bytes() == before


def test_ctrl_c_leaves_a_checkpoint_and_pictures(tmp_path):
    """SIGINT in the middle of training: exit code 130, and a run that can be resumed."""
    command = [sys.executable, "-m", "metal_ops", "nerf", "train", *OPTIONS, "--seconds", "100"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*command, "--runs", tmp_path, "--name", "run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )
    try:
        deadline = time.monotonic() + 90
        for line in process.stdout:
            if "step" in line and "PSNR" in line:  # the first evaluation: training is on its way
                break
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 130, rest
    assert "Stopped" in rest and "Pictures:" in rest
    folder = tmp_path / "run"
    header, _ = checkpoint.load(folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["interrupted"] and header["step"] == metrics["steps"] > 0
    assert (folder / "turntable.gif").stat().st_size > 0
    assert nerf("train", "--resume", folder, "--steps", header["step"] + 2, "--frames", 2) == 0
    assert checkpoint.load(folder)[0]["step"] == header["step"] + 2


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


def test_step_is_traced_once(still_life):
    """The number of rays and samples changes all the time; a retrace each time would take seconds."""
    trainer = trained(still_life, steps=20)
    assert trainer._train.experimental_get_tracing_count() == 1
    assert trainer._look.experimental_get_tracing_count() == 1
    assert tf.executing_eagerly()
