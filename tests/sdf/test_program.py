"""The program: the learnt field, its second-order gradient, files, mistakes, Ctrl-C."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from metal_ops import cli
from metal_ops.programs import checkpoint
from metal_ops.sdf import files, mesh
from metal_ops.sdf.config import ModelConfig, TrainConfig
from metal_ops.sdf.distance import Distances
from metal_ops.sdf.evaluate import score
from metal_ops.sdf.mesh import Mesh
from metal_ops.sdf.model import DistanceField
from metal_ops.sdf.pictures import by_differences, traced
from metal_ops.sdf.train import SdfFit
from tests.interrupts import interrupt

MODEL = dict(n_levels=4, log2_hashmap_size=12, finest_resolution=32, n_neurons=16)
SIZES = "--levels 4 --log2-hashmap-size 12 --finest-resolution 32 --neurons 16 --batch 1024 --samples 2048".split()


def sdf(*arguments: object) -> int:
    return cli.main(["sdf", *map(str, arguments)])


@pytest.fixture(autouse=True, scope="module")
def few_points():
    """The number of points measured at a run's end."""
    from metal_ops.sdf import run, train

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "RESOLUTION", 32)
        patch.setattr(run, "POINTS", 512)
        patch.setattr(run, "_SHOWN", 32)
        patch.setattr(train, "_SHOWN", 32)
        yield


@pytest.fixture(scope="module")
def ball(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("meshes") / "ball.ply"
    some = mesh.sphere(8)
    files.write(path, Mesh(5 * some.vertices + 100, some.triangles))
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory, ball) -> Path:
    """The folder of a run of 150 steps."""
    folder = tmp_path_factory.mktemp("runs") / "toy"
    assert sdf("train", ball, *SIZES, "--steps", 150, "-o", folder) == 0
    return folder


def fit_of(steps: int = 6, **options) -> SdfFit:
    placed, _ = mesh.in_cube(mesh.closed(mesh.sphere(6), "ball"), "ball")
    train = TrainConfig(seconds=None, steps=steps, **{"batch": 512, "samples": 512, **options})
    return SdfFit(placed, Distances(placed), ModelConfig(**MODEL), train)


def test_a_run_leaves_its_files(finished, ball):
    names = {"checkpoint.npz", "comparison.png", "metrics.json", "picture.png", "progress.png"}
    assert {file.name for file in finished.iterdir()} >= names | {"error.png"}
    metrics = json.loads((finished / "metrics.json").read_text())
    assert metrics["steps"] == 150 and metrics["data"] == str(ball) and not metrics["interrupted"]
    assert metrics["error"] < 0.01 and metrics["iou"] > 0.95 and metrics["chamfer"] < 0.01
    for name in ("comparison.png", "progress.png", "error.png"):
        with Image.open(finished / name) as picture:
            assert min(picture.size) > 100 and np.asarray(picture.convert("L")).std() > 10


def test_the_mesh_again(finished, tmp_path):
    """A closed ball of the radius and in the place of the one that was learnt."""
    for name in ("a.obj", "a.ply"):
        assert sdf("mesh", finished, "--resolution", 24, "--out", tmp_path / name) == 0
        found = files.read(tmp_path / name)
        radii = np.linalg.norm(found.vertices - 100, axis=1)
        np.testing.assert_allclose(radii, 5, atol=0.35)
        assert mesh.closed(found, "found").volume() == pytest.approx(4 / 3 * np.pi * 125, rel=0.06)


def test_eval_and_render(finished, tmp_path):
    assert sdf("eval", finished, "--resolution", 24, "--points", 500) == 0
    said = json.loads((finished / "eval.json").read_text())
    assert said["iou"] > 0.95 and 0 < said["chamfer"] < 0.01
    options = ["--frames", 3, "--size", 32, "--out"]
    assert sdf("render", finished, *options, tmp_path / "a.gif") == 0
    assert sdf("render", finished, *options, tmp_path / "a.png") == 0
    with Image.open(tmp_path / "a.gif") as turn, Image.open(tmp_path / "a.png") as picture:
        assert turn.n_frames == 3 and picture.size == turn.size == (32, 32)


def test_a_score_of_what_is_known():
    """Two balls of which one is larger: Chamfer is the difference, IoU the cube of the quotient."""
    placed, _ = mesh.in_cube(mesh.closed(mesh.sphere(16), "ball"), "ball")
    exact = Distances(placed)

    def larger(points):
        return np.linalg.norm(points - 0.5, axis=1) - 0.44

    found = score(larger, placed, exact, 48, 4000)
    assert found.chamfer == pytest.approx(0.04 / 0.8, rel=0.05)
    assert found.iou == pytest.approx((0.4 / 0.44) ** 3, rel=0.05)


def test_a_ball_is_traced_where_it_is():
    def ball(points):
        return np.linalg.norm(points - 0.5, axis=1) - 0.4

    pixels = traced(ball, by_differences(ball), 64)
    disc = (pixels != pixels[0, 0]).any(-1)
    # Its outline's slope: 0.4 by the length of the tangent.
    radius = 0.4 / np.sqrt(2.0**2 - 0.4**2) / 0.29 * 32
    assert disc.sum() == pytest.approx(np.pi * radius**2, rel=0.03) and disc[32, 32]


@pytest.mark.parametrize("last", [1e-4, 0.05], ids=["decades", "less than one"])
def test_curves_are_drawn_with_the_fonts_that_are_there(last, tmp_path, monkeypatch):
    """Labels that are formulas want a dozen fonts, and each that is missing is a line in the terminal."""
    from matplotlib.mathtext import MathTextParser

    from metal_ops.programs.pictures import curve

    def parse(*arguments):
        raise AssertionError("a formula is drawn")

    monkeypatch.setattr(MathTextParser, "parse", parse)
    history = [{"seconds": 1.0, "error": 0.08}, {"seconds": 2.0, "error": last}]
    curve(tmp_path / "a.png", history, "error", "error", "$a$", log=True)
    assert np.asarray(Image.open(tmp_path / "a.png")).std() > 10


def test_gradients_of_the_losses():
    """Gradients of all variables, through the gradient of the encoding, against differences."""
    fit = fit_of(eikonal=0.5)
    random = np.random.default_rng(0)
    fit.field.table.assign(random.uniform(-0.1, 0.1, fit.field.table.shape).astype(np.float32))
    drawn = [tf.constant(random.uniform(0.2, 0.8, (8, 3)), tf.float32) for _ in range(3)]
    points = (drawn[0], drawn[1], tf.constant(random.uniform(-0.3, 0.3, 8), tf.float32), drawn[2])

    def loss():
        off, eikonal = fit.losses(*points)
        return off + 0.5 * eikonal

    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, fit.variables)
    for variable, gradient in zip(fit.variables, gradients, strict=True):
        direction = random.normal(size=variable.shape).astype(np.float32)
        size = float(tf.norm(gradient))
        # Along the gradient itself, too: a random direction hardly sees it.
        direction = direction / np.linalg.norm(direction) + gradient.numpy() / max(size, 1e-9)
        step, before = 1e-3, variable.numpy()
        values = []
        for sign in (1, -1):
            variable.assign(before + sign * step * direction)
            values.append(float(loss()))
        variable.assign(before)
        right = (values[0] - values[1]) / (2 * step)
        found = float(tf.reduce_sum(gradient * direction))
        assert size > 1e-4 and found == pytest.approx(right, rel=0.03, abs=2e-3), variable.name


def test_the_eikonal_loss_has_an_effect():
    """Gradients of a field that was trained with it are nearer to 1 in length."""
    lengths = []
    for weight in (0.0, 1.0):
        fit = fit_of(steps=60, eikonal=weight, learning_rate=0.02)
        while not fit.done:
            fit.train_step()
        points = np.random.default_rng(1).uniform(size=(500, 3))
        lengths.append(np.linalg.norm(fit.sampled.gradient(points), axis=1))
    off = [np.abs(length - 1).mean() for length in lengths]
    assert off[1] < 0.6 * off[0]


def test_the_fields_gradient_is_its_slope():
    field = DistanceField(ModelConfig(**MODEL))
    field.table.assign(tf.random.stateless_uniform(field.table.shape, [1, 2], -0.1, 0.1))
    points = np.random.default_rng(2).uniform(0.1, 0.9, (20, 3)).astype(np.float32)
    _, gradient = field.with_gradient(tf.constant(points))
    right = by_differences(lambda p: field(tf.constant(p, tf.float32)).numpy(), 1e-3)(points)
    np.testing.assert_allclose(gradient, right, atol=0.02)


def test_goes_on_bit_by_bit(tmp_path):
    whole, first, second = fit_of(), fit_of(), fit_of()
    losses = [whole.train_step() for _ in range(6)]
    begun = [first.train_step() for _ in range(3)]
    first.save(tmp_path / "checkpoint.npz", {})
    second.load(*checkpoint.load(tmp_path / "checkpoint.npz"), "here")
    assert begun + [second.train_step() for _ in range(3)] == losses
    for a, b in zip(whole.variables, second.variables, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=a.name)


def test_ctrl_c_leaves_everything_and_resume(ball, tmp_path, monkeypatch, capsys):
    interrupt(SdfFit, monkeypatch)
    folder = tmp_path / "a"
    assert sdf("train", ball, *SIZES, "--steps", 1000, "-o", folder) == 130
    assert "Stopped; writing the checkpoint" in capsys.readouterr().out
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["steps"] == 3 and metrics["interrupted"]
    monkeypatch.undo()
    assert sdf("train", "--resume", folder, "--steps", 4) == 0
    assert json.loads((folder / "metrics.json").read_text())["steps"] == 4
    assert sdf("train", "--resume", folder) == 2
    assert "has used up its budget" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["train", "nowhere.ply"], "nowhere.ply: no such mesh"),
        (["train", "OPEN"], "is open: the edge from"),
        (["train", "--finest-resolution", 4], "must be at least the 8 of 'base_resolution'"),
        (["train", "--eikonal", -1], "field 'eikonal' must be a number from 0 to 1000"),
        (["train", "a.ply", "--resume", "RUN"], "leave a.ply out"),
        (["mesh", "RUN", "--out", "a.stl"], r"a mesh is an \.obj or a \.ply"),
        (["render", "RUN", "--out", "a.jpg"], r"a turntable is a \.gif, one picture a \.png"),
        (["eval", "nowhere"], "no such checkpoint"),
    ],
)
def test_mistakes(arguments, words, finished, tmp_path, capsys):
    named = {"RUN": finished, "OPEN": tmp_path / "open.obj"}
    some = mesh.sphere(3)
    files.write(tmp_path / "open.obj", Mesh(some.vertices, some.triangles[1:]))
    assert sdf(*(named.get(word, word) for word in arguments)) == 2
    said = capsys.readouterr().err
    assert re.search(words, said) and said.startswith("sdf: ") and len(said.splitlines()) == 1


def test_a_damaged_checkpoint(finished, ball, tmp_path, capsys):
    with np.load(finished / "checkpoint.npz") as file:
        arrays = dict(file)
    header = json.loads(str(arrays["header"]))
    other = tmp_path / "other.ply"
    files.write(other, mesh.sphere(4))
    for change, words in (
        ({"data": str(other)}, "it is another mesh"),
        ({"centre": [1, 2]}, "fields 'centre' and 'scale' must be three numbers"),
        ({"scale": 0}, "fields 'centre' and 'scale' must be three numbers"),
        ({"model": {"n_levels": 99}}, "field 'n_levels' must be a whole number from 1 to 32"),
    ):
        arrays["header"] = np.array(json.dumps(header | change))
        np.savez(tmp_path / "checkpoint.npz", **arrays)
        assert sdf("eval", tmp_path) == 2
        assert re.search(words, capsys.readouterr().err)


@pytest.mark.parametrize("command", ["", "train", "eval", "mesh", "render"])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        sdf(*[command] * bool(command), "--help")
    assert stopped.value.code == 0 and "examples:" in capsys.readouterr().out
