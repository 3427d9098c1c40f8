"""The program: the results of a fit, its files, mistakes, Ctrl-C, the picture in a terminal."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from metal_ops import cli
from metal_ops.image import train
from metal_ops.image.config import ModelConfig, TrainConfig
from metal_ops.image.picture import Picture, drawn, load
from metal_ops.image.train import ImageFit
from metal_ops.programs import checkpoint, fitting
from tests.interrupts import interrupt

SIZES = "--levels 8 --log2-hashmap-size 12 --neurons 16 --hidden-layers 1 --batch 2048".split()


def image(*arguments: object) -> int:
    return cli.main(["image", *map(str, arguments)])


def smooth(width: int, height: int) -> np.ndarray:
    y, x = np.mgrid[:height, :width] / 16
    waves = [np.sin(x), np.cos(y), np.sin(x + 2 * y)]
    return (127.5 + 127.4 * np.stack(waves, -1)).astype(np.uint8)


@pytest.fixture(scope="module")
def photo(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "photo.png"
    Image.fromarray(smooth(90, 60)).save(path)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory, photo) -> Path:
    """The folder of a run of 150 steps."""
    folder = tmp_path_factory.mktemp("runs") / "toy"
    assert image("fit", photo, *SIZES, "--steps", 150, "-o", folder) == 0
    return folder


def test_a_run_leaves_its_files(finished, photo):
    names = {"checkpoint.npz", "comparison.png", "metrics.json", "picture.png", "progress.png"}
    assert {file.name for file in finished.iterdir()} >= names | {"psnr.png"}
    metrics = json.loads((finished / "metrics.json").read_text())
    assert metrics["steps"] == 150 and metrics["data"] == str(photo) and not metrics["interrupted"]
    assert metrics["psnr"] > 28 and metrics["psnr_pixels"] == 90 * 60
    for name in ("comparison.png", "progress.png", "psnr.png"):
        with Image.open(finished / name) as picture:
            assert min(picture.size) > 100 and np.asarray(picture.convert("L")).std() > 10


def test_what_is_rendered_is_what_is_measured(finished, photo, tmp_path):
    """PSNR by another hand, of the PNG's bytes: they are rounded, which counts at 46 dB."""
    assert image("eval", finished) == 0
    said = json.loads((finished / "eval.json").read_text())
    assert image("render", finished, "--out", tmp_path / "a.png") == 0
    with Image.open(photo) as truth, Image.open(tmp_path / "a.png") as found:
        assert found.size == truth.size == (90, 60)
        error = np.mean((np.asarray(truth, np.float64) - np.asarray(found)) ** 2) / 255**2
    assert said["pixels"] == 90 * 60 and said["psnr"] == pytest.approx(
        -10 * np.log10(error), abs=0.4
    )


def test_render_a_part_larger(finished, tmp_path):
    """Every third pixel of a threefold picture lies in the middle of one of the picture's own."""
    assert image("render", finished, "--out", tmp_path / "a.png") == 0
    part = ["--part", 30, 10, 20, 8, "--size", 60]
    assert image("render", finished, *part, "--out", tmp_path / "b.png") == 0
    with Image.open(tmp_path / "a.png") as whole, Image.open(tmp_path / "b.png") as part:
        assert part.size == (60, 24)
        right = np.asarray(whole, np.int32)[10:18, 30:50]
        assert np.abs(np.asarray(part, np.int32)[1::3, 1::3] - right).max() <= 1


def test_goes_on_bit_by_bit(tmp_path):
    def fit() -> ImageFit:
        model = ModelConfig(n_levels=4, log2_hashmap_size=10, finest_resolution=32, n_neurons=16)
        train = TrainConfig(seconds=None, steps=6, batch=256)
        return ImageFit(Picture("waves", smooth(40, 30)), model, train)

    whole, first, second = fit(), fit(), fit()
    losses = [whole.train_step() for _ in range(6)]
    begun = [first.train_step() for _ in range(3)]
    first.save(tmp_path / "checkpoint.npz", {})
    second.load(*checkpoint.load(tmp_path / "checkpoint.npz"), "here")
    assert begun + [second.train_step() for _ in range(3)] == losses
    for a, b in zip(whole.variables, second.variables, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=a.name)


def test_ctrl_c_leaves_everything_and_resume(photo, tmp_path, monkeypatch, capsys):
    interrupt(ImageFit, monkeypatch)
    folder = tmp_path / "a"
    assert image("fit", photo, *SIZES, "--steps", 1000, "-o", folder) == 130
    assert "Stopped; writing the checkpoint" in capsys.readouterr().out
    metrics = json.loads((folder / "metrics.json").read_text())
    assert metrics["steps"] == 3 and metrics["interrupted"]
    monkeypatch.undo()
    assert image("fit", "--resume", folder, "--steps", 4) == 0
    assert json.loads((folder / "metrics.json").read_text())["steps"] == 4
    assert image("fit", "--resume", folder) == 2
    assert "has used up its budget" in capsys.readouterr().err


def test_a_terminal_shows_the_picture(tmp_path):
    """And picture.png is there before the end."""
    model = ModelConfig(n_levels=4, log2_hashmap_size=10, finest_resolution=32, n_neurons=16)
    fit = ImageFit(
        Picture("waves", smooth(40, 30)), model, TrainConfig(seconds=None, steps=200, batch=256)
    )
    seen = []
    measure = fit.measure

    def watched() -> float:
        seen.append((tmp_path / "picture.png").is_file())
        return measure()

    fit.measure = watched  # type: ignore[method-assign]
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="truecolor", width=90, height=30)
    fit.seconds = 0.4  # as if: the first look comes soon
    assert not fitting.run(fit, tmp_path, {}, console, "waves")
    assert len(seen) >= 2 and seen[0] is False and all(seen[1:])
    assert out.getvalue().count("\u2580") > 500 and "dB" in out.getvalue()


def test_the_built_in_picture():
    pixels = drawn(60, 40)
    assert pixels.shape == (40, 60, 3) and (pixels == drawn(60, 40)).all() and pixels.std() > 40
    # A Julia set is the same from the other side.
    np.testing.assert_allclose(pixels[::-1, ::-1], pixels, atol=1)


@pytest.mark.parametrize("kind", ["ppm", "npy"])
def test_mapped_files(kind, tmp_path):
    """They hold the written bytes, and are not read into memory."""
    pixels, path = smooth(50, 30), tmp_path / f"a.{kind}"
    if kind == "npy":
        np.save(path, pixels)
    else:
        path.write_bytes(b"P6\n# by hand\n50 30\n255\n" + pixels.tobytes())
    found = load(str(path))
    assert isinstance(found.pixels, np.memmap) and (found.width, found.height) == (50, 30)
    np.testing.assert_array_equal(found.pixels, pixels)


def test_a_sparse_gigapixel_file_is_fitted(tmp_path, monkeypatch):
    """6 GB that are nowhere: only drawn pixels are read."""
    monkeypatch.setattr(train, "_MEASURED", 256)
    path = tmp_path / "huge.ppm"
    with open(path, "wb") as file:
        file.write(b"P6 65536 32768 255\n")
        file.truncate(file.tell() + 3 * 65536 * 32768)
    picture = load(str(path))
    fit = ImageFit(picture, ModelConfig(n_levels=2), TrainConfig(steps=1, batch=64))
    assert np.isfinite(fit.train_step()) and picture.longest == 65536


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_photos_are_upright(orientation, tmp_path):
    """As viewers show them: the sensor of a telephone that is held upright lies."""
    upright = np.zeros((4, 6, 3), np.uint8)
    upright[:2, :3], upright[:2, 3:], upright[2:, :3] = (250, 0, 0), (0, 250, 0), (0, 0, 250)
    lying = np.rot90(upright, {1: 0, 3: 2, 6: 1, 8: 3}[orientation])
    image = Image.fromarray(lying)
    image.getexif()[274] = orientation
    image.save(tmp_path / "photo.png", exif=image.getexif())
    np.testing.assert_array_equal(load(str(tmp_path / "photo.png")).pixels, upright)


def test_transparent_pixels_lie_over_white(tmp_path):
    pixels = np.zeros((4, 6, 4), np.uint8)
    pixels[:, 3:, 3] = 128
    Image.fromarray(pixels).save(tmp_path / "a.png")
    found = load(str(tmp_path / "a.png"))
    assert "over white" in found.note
    assert found.pixels[0, 0].tolist() == [255] * 3 and found.pixels[0, 5].tolist() == [127] * 3


HOSTILE = {
    "nothing.png": (None, "nothing.png: no such picture"),
    "empty.png": (b"", "not a readable image"),
    "text.jpg": (b"hello", "not a readable image"),
    "short.ppm": (b"P6 4 4 255\n123", "declares 4 x 4 pixels, 48 bytes, and has 3"),
    "deep.ppm": (b"P6 1 1 65535\n123456", "has values up to 65535, expected 255"),
    "none.ppm": (b"P6 0 4 255\n", "has 0 x 4 pixels, expected 1 to 131072"),
    "wide.ppm": (b"P6 999999999 4 255\n", "has 999999999 x 4 pixels"),
    "words.ppm": (b"P6 wide high\n", "not a readable PPM file"),
    "comments.ppm": (b"P6" + b"#\n" * 2000, "not a readable PPM file"),
    "bad.npy": (b"\x93NUMPY\x01\x00\x10\x00{'descr': bogus}", "not a readable .npy file"),
    "pickle.npy": (np.array([{}], object), "not a readable .npy file"),
    "float.npy": (np.zeros((2, 2, 3)), "expected uint8 of shape .*, got float64 of \\[2, 2, 3\\]"),
    "grey.npy": (np.zeros((2, 2), np.uint8), "got uint8 of \\[2, 2\\]"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name, tmp_path, capsys):
    content, words = HOSTILE[name]
    path = tmp_path / name
    if isinstance(content, np.ndarray):
        np.save(path, content, allow_pickle=True)
    elif content is not None:
        path.write_bytes(content)
    assert image("fit", path, "-o", tmp_path / "run") == 2
    said = capsys.readouterr().err
    assert re.search(words, said) and said.startswith("image: ") and len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["render", "RUN", "--part", 80, 0, 20, 20], "does not lie in the picture of 90 x 60"),
        (["render", "RUN", "--part", 0, 0, 1, 0], "does not lie in the picture"),
        (["render", "RUN", "--size", 30000], "are more than 134217728; give a smaller one"),
        (["render", "RUN", "--out", "a.jpg"], r"--out a.jpg: a picture is a \.png"),
        (["render", "nowhere"], "no such checkpoint"),
        (["fit", "a.png", "--resume", "RUN"], "leave a.png out"),
        (["fit", "PHOTO", "--levels", 20, "--features", 8], "a product of at most 125"),
        (
            ["fit", "PHOTO", "--base-resolution", 64, "--finest-resolution", 32],
            "at least the 64 of",
        ),
    ],
)
def test_mistakes(arguments, words, finished, photo, capsys):
    named = {"RUN": finished, "PHOTO": photo}
    assert image(*(named.get(word, word) for word in arguments)) == 2
    said = capsys.readouterr().err
    assert re.search(words, said) and said.startswith("image: ") and len(said.splitlines()) == 1


def test_another_picture_in_its_place(finished, photo, tmp_path, capsys):
    with np.load(finished / "checkpoint.npz") as file:
        arrays = dict(file)
    header = json.loads(str(arrays["header"]))
    other = tmp_path / "other.png"
    Image.fromarray(smooth(20, 20)).save(other)
    for change, words in (
        ({"data": str(other)}, "it is another picture"),
        ({"data": 3}, "field 'data' must be a path"),
        ({"model": {}, "width": 90}, "array 'model/.*' has shape"),
    ):
        arrays["header"] = np.array(json.dumps(header | change))
        np.savez(tmp_path / "checkpoint.npz", **arrays)
        assert image("eval", tmp_path) == 2
        assert re.search(words, capsys.readouterr().err)


@pytest.mark.parametrize("command", ["", "fit", "eval", "render"])
def test_help(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        image(*[command] * bool(command), "--help")
    assert stopped.value.code == 0 and "examples:" in capsys.readouterr().out


@pytest.mark.parametrize("most, pixels", [(None, 900), (300, 300), (100, 90)])
def test_psnr_of_every_pixel_in_tiles(most, pixels, monkeypatch):
    """Whatever the tiles: that of the whole picture, or of some rows."""
    model = ModelConfig(n_levels=2, finest_resolution=32, n_neurons=16)
    picture = Picture("waves", smooth(30, 30))
    fit = ImageFit(picture, model, TrainConfig(steps=1, batch=64))
    y, x = (a.ravel() for a in np.mgrid[0 : 30 : 900 // pixels, :30])
    error = np.mean((fit.colours(picture.points(x, y)) - picture.pixels[y, x] / 255.0) ** 2)
    for tile in (1 << 16, 70, 7):
        monkeypatch.setattr(train, "TILE", tile)
        psnr, count = train.every_pixel(fit, most)
        assert count == pixels and psnr == pytest.approx(-10 * np.log10(error), abs=1e-4)
