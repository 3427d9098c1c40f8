"""The program: its files, every kind of scene, mistakes, Ctrl-C. Most run in this process, through the command line."""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from metal_ops import cli
from metal_ops.nerf.compare import compare_run
from metal_ops.nerf.config import ModelConfig, TrainConfig
from metal_ops.nerf.scenes import Views
from metal_ops.nerf.train import Trainer
from metal_ops.programs import checkpoint
from metal_ops.programs.command import whole
from metal_ops.programs.errors import ProgramError
from tests.interrupts import interrupt
from tests.processes import Process

from . import scenes_on_disk as disk

pytestmark = pytest.mark.usefixtures("few_built_in_views")
SMALL_RUN = "--levels 4 --log2-hashmap-size 10 --samples 1024 --eval-views 3".split()
OPTIONS = ["--size", "32", "--frames", "2", *SMALL_RUN]


def nerf(*arguments: object) -> int:
    return cli.main(["nerf", *map(str, arguments)])


@pytest.fixture(scope="module")
def said_by_finished(tmp_path_factory, few_built_in_views) -> tuple[Path, str]:
    """The folder of a run of 12 steps, which has the name of its scene, and the printed lines."""
    runs = tmp_path_factory.mktemp("runs")
    with redirect_stdout(io.StringIO()) as out:
        assert nerf("train", *OPTIONS, "--steps", 12, "--runs", runs) == 0
    return runs / "still_life", out.getvalue()


@pytest.fixture
def finished(said_by_finished) -> Path:
    return said_by_finished[0]


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


def test_the_default_budget_is_that_of_make_nerf():
    """`make nerf` passes no budget: at most 90 s of training."""
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    (line,) = re.findall(r"metal_ops nerf train(.*)", makefile)
    assert line.strip() == '$(if $(DATA),--data "$(DATA)") $(ARGS)'
    assert 0 < TrainConfig().seconds <= 90


def test_it_says_the_scene_and_last_where_the_pictures_are(said_by_finished):
    folder, said = said_by_finished
    reading, first, *_, last = said.strip().splitlines()
    assert reading == "Reading the scene."
    assert first == "Scene still_life: 12 training and 3 held-out views of 32x32 pixels."
    assert str(folder / "comparison.png") in last


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
    assert len(pictures) == 3 and Image.open(pictures[0]).mode == "RGBA"
    of_training = (finished / "turntable.gif").read_bytes()
    assert nerf("render", finished, "--frames", 1, "--size", 8) == 0
    assert (finished / "turntable.gif").read_bytes() == of_training
    (finished / "render.gif").unlink()


def test_resume_goes_on_and_refuses_a_used_up_budget(finished, tmp_path, capsys):
    folder = Path(shutil.copytree(finished, tmp_path / "copy"))
    assert nerf("train", "--resume", folder) == 2
    assert "used up its budget (12 steps" in capsys.readouterr().err
    assert nerf("train", "--resume", folder, "--steps", 15, "--frames", 2) == 0
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["steps"] == 15 and len(metrics["history"]) >= 2


COMPARISONS = {
    # Arguments, the contenders, and whether the exit code says that all of them reached a PSNR.
    "encodings": (["--steps", 3], ["hash", "frequency"], False),
    "backends": (
        ["--backends", "fused", "--backends", "composite", "--seconds", 2.5, "--until-psnr", 12.0],
        ["fused", "composite"],
        True,
    ),
}


@pytest.mark.parametrize(
    "kind", ["encodings", pytest.param("backends", marks=pytest.mark.full("trains by the clock"))]
)
def test_compare_trains_both_and_draws_their_curves(kind, tmp_path, capsys):
    arguments, names, timed = COMPARISONS[kind]
    code = nerf("compare", *OPTIONS, *arguments, "--runs", tmp_path, "--name", "run")
    content = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert list(content["contenders"]) == names
    for result in content["contenders"].values():
        assert result["history"] and result["steps"] > 0 and result["psnr"] > 5
    reached = all(r["seconds_to_psnr"] is not None for r in content["contenders"].values())
    assert code == (0 if reached or not timed else 1)
    assert timed == (content["contenders"][names[0]]["seconds_to_psnr"] is not None)
    pictures = {f"comparison-{name}.png" for name in names} | {"psnr.png", "metrics.json"}
    assert {file.name for file in (tmp_path / "run").iterdir()} == pictures
    out = capsys.readouterr().out
    assert all(name in out for name in names) and ("times sooner than" in out) == (
        timed and reached
    )


KINDS_OF_SCENES = {
    "blender": ("--backend", "composite"),
    "blender, no alpha": ("--background", "black"),
    "tiny": ("--encoding", "frequency", "--frequency-width", 32),
    "instant-ngp": ("--mixed-precision", "--downscale", 2),
    "instant-ngp, a file": ("--finest-resolution", 64),
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.full("as its folder")) if "a file" in kind else kind
        for kind in KINDS_OF_SCENES
    ],
)
def test_every_kind_of_scene_trains(kind, tmp_path, still_life, capsys):
    """Through the commands, each kind with another option of the model."""
    data = tmp_path / "data"
    if kind.startswith("blender"):
        disk.blender(data, still_life)
        if "no alpha" in kind:
            for file in data.glob("*/*.png"):
                Image.open(file).convert("RGB").save(file)
    elif kind == "tiny":
        data.mkdir()
        data = disk.tiny(data / "tiny.npz", still_life)
    else:
        views = still_life.train
        nine = Views(views.names[:9], views.images[:9], views.cameras.select(range(9)))
        disk.instant_ngp(data, nine, k1=0.02, aabb_scale=2)
        data = data / "transforms.json" if "file" in kind else data
    options = [*SMALL_RUN, "--frames", 1, "--runs", tmp_path, "--name", "run"]
    code = nerf("train", "--data", data, *options, *KINDS_OF_SCENES[kind], "--steps", 2)
    assert code == 0 and (tmp_path / "run" / "comparison.png").exists()
    told = capsys.readouterr().out
    assert ("Note: " in told and "no alpha" in told) == (kind != "blender")
    if "--downscale" in KINDS_OF_SCENES[kind]:  # the checkpoint says how to load the scene again
        assert nerf("eval", tmp_path / "run", "--views", 1) == 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["steps"] == 2 and metrics["device"] == "CPU"
    model = metrics["model"]
    changed = {name for name, value in model.items() if value != getattr(ModelConfig(), name)}
    expected = {
        "blender": "backend",
        "tiny": "encoding",
        "instant-ngp": "mixed_precision",
        "instant-ngp, a file": "finest_resolution",
    }
    assert expected.get(kind, "n_levels") in changed


def damaged(tmp_path: Path, scene: Any, damage: str) -> Path:
    """A NeRF-synthetic folder with one thing wrong."""
    folder = disk.blender(tmp_path / "chair", scene)
    image, cameras = folder / "train" / "r_1.png", folder / "transforms_train.json"
    content = json.loads(cameras.read_text())
    pose = content["frames"][1]["transform_matrix"]
    if damage == "missing image":
        image.unlink()
    elif damage == "other size":
        Image.new("RGBA", (20, 20)).save(image)
    elif damage == "unreadable PNG":
        image.write_bytes(image.read_bytes()[:300])
    elif damage == "one without alpha":
        Image.open(image).convert("RGB").save(image)
    elif damage == "NaN pose":
        pose[0][3] = math.nan
    elif damage == "no rotation":
        pose[0][0] += 0.1
    elif damage == "unknown key":
        content["frame"] = content.pop("frames")
    cameras.write_text(json.dumps(content))
    return folder


DAMAGES = {
    "missing image": ("r_1.png", "no such image file"),
    "other size": ("./train/r_1 has 20x20", "one size"),
    "unreadable PNG": ("r_1.png", "not a readable image"),
    "one without alpha": ("./train/r_1, have none", "some images have alpha"),
    "NaN pose": ("frames[1].transform_matrix (./train/r_1)", "not finite"),
    "no rotation": ("frames[1].transform_matrix (./train/r_1)", "not a rotation"),
    "unknown key": ("unknown field 'frame'", "is 'frames' meant?"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_bad_scenes_are_one_sentence_and_leave_nothing(damage, tmp_path, still_life, capsys):
    folder = damaged(tmp_path, still_life, damage)
    runs = tmp_path / "runs"
    assert nerf("train", "--data", folder, "--steps", 1, "--runs", runs) == 2
    error = capsys.readouterr().err
    assert str(folder) in error and error.count("\n") == 1
    for part in DAMAGES[damage]:
        assert part in error
    assert not runs.exists()


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
    "runs in a file": (["train", "--runs", "{tiny}"], "cannot be written (File exists)"),
    "runs where nothing can be": (
        ["train", "--runs", "/proc/runs"],
        "/proc/runs: cannot be written (No such file or directory); give another folder by --runs",
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
    extra = ["--runs", runs] if arguments[0] == "train" and "--runs" not in arguments else []
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
    assert caught.value.code == 2 and "--help` lists the options." in capsys.readouterr().err


def test_whole_numbers_of_options_fit_an_int32():
    parse = whole(1)
    assert [parse(text) for text in ("1", "12", str(2**30))] == [1, 12, 2**30]
    for text in ("0", "-1", str(2**31), "9" * 40, "1.5", "many", ""):
        with pytest.raises(argparse.ArgumentTypeError, match="expected a whole number"):
            parse(text)


def test_one_contender_is_no_comparison(tmp_path):
    with pytest.raises(ProgramError, match="at least two different contenders"):
        compare_run(None, {"hash": ModelConfig()}, TrainConfig(), tmp_path, {}, Console())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [[], ["train"], ["eval"], ["render"], ["compare"]])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        nerf(*command, "--help")
    assert caught.value.code == 0 and "usage:" in capsys.readouterr().out


def test_an_existing_run_is_not_replaced(finished, capsys):
    before = (finished / "checkpoint.npz").read_bytes()
    options = ["--steps", 1, "--runs", finished.parent, "--name", finished.name]
    assert nerf("train", *OPTIONS, *options) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (finished / "checkpoint.npz").read_bytes() == before


def test_ctrl_c_leaves_a_checkpoint_and_pictures(tmp_path, monkeypatch, capsys):
    """In the middle of training: exit code 130, and a run that can be resumed."""
    interrupt(Trainer, monkeypatch)
    options = ["--seconds", 100, "--runs", tmp_path, "--name", "run"]
    assert nerf("train", *OPTIONS, *options) == 130
    said = capsys.readouterr().out
    assert "Stopped" in said and "Pictures:" in said
    folder = tmp_path / "run"
    header, _ = checkpoint.load(folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["interrupted"] and header["step"] == metrics["steps"] == 3
    assert (folder / "turntable.gif").stat().st_size > 0
    monkeypatch.undo()
    assert nerf("train", "--resume", folder, "--steps", 5, "--frames", 2) == 0
    assert checkpoint.load(folder)[0]["step"] == 5


@pytest.mark.full("processes; test_ctrl_c_leaves_a_checkpoint_and_pictures is as it, in this one")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_signal_from_elsewhere(number, tmp_path):
    """Once training is on its way."""
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
            if "step" in line and "PSNR" in line:  # the first evaluation
                break
            assert time.monotonic() < deadline
        process.send_signal(number)
        rest, _ = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 130, rest
    assert "Stopped" in rest and "Pictures:" in rest
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["interrupted"] and checkpoint.load(tmp_path / "run")[0]["step"] > 0


def test_sigterm_before_training_is_an_interrupt(tmp_path):
    """While the program imports TensorFlow or renders the scene, there is nothing to save."""
    program = (
        "import os, signal, sys, threading; from metal_ops import cli\n"
        "import metal_ops.nerf.scenes as scenes\n"
        "scenes.load_scene = lambda *_: os.kill(os.getpid(), signal.SIGTERM) or signal.pause()\n"
        "sys.exit(cli.main(['nerf', 'train', '--runs', sys.argv[1]]))"
    )
    code, _, error = Process("-c", program, str(tmp_path / "runs")).finish(300)
    assert (code, error) == (130, "nerf: interrupted.\n")
    assert not (tmp_path / "runs").exists()


def test_the_recipe_table_in_the_docs_is_the_measured_one():
    """docs/nerf.md shows four of the columns of benchmarks/results/nerf_recipe.md."""
    root = Path(__file__).parents[2]
    measured = (root / "benchmarks" / "results" / "nerf_recipe.md").read_text()
    rows = [line.split("|")[1:5] for line in measured.splitlines() if line.startswith("| ")]
    assert len(rows) == 12
    shown = (root / "docs" / "nerf.md").read_text()
    for row in rows:
        assert "|" + "|".join(row) + "|\n" in shown
