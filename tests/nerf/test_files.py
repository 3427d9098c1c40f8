"""Files are whole or not there; metrics mean the same as in papers; checkpoints refuse other models."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from metal_ops.nerf.metrics import on_background, psnr, ssim
from metal_ops.programs import checkpoint
from metal_ops.programs.errors import CheckpointError, ProgramError
from metal_ops.programs.files import atomic, run_folder, write_json


def test_atomic_replaces_only_when_complete(tmp_path):
    target = tmp_path / "a.bin"
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic(target) as temporary:
        temporary.write_bytes(b"half")
        raise RuntimeError
    assert target.read_bytes() == b"old" and list(tmp_path.iterdir()) == [target]
    with atomic(target) as temporary:
        temporary.write_bytes(b"new")
        assert target.read_bytes() == b"old"  # until the block ends
    assert target.read_bytes() == b"new" and list(tmp_path.iterdir()) == [target]


def test_a_failed_save_keeps_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.npz"
    checkpoint.save(path, "nerf", {"step": 1}, {"a": np.arange(3)})

    def full_disk(file, array, **how):
        file.write(b"PK")
        raise OSError("No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full_disk)
    with pytest.raises(
        ProgramError, match=r"checkpoint.npz: cannot be written \(No space left on device\)"
    ):
        checkpoint.save(path, "nerf", {"step": 2}, {"a": np.arange(4)})
    monkeypatch.undo()
    header, arrays = checkpoint.load(tmp_path)
    assert header["step"] == 1 and arrays["a"].tolist() == [0, 1, 2]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04junk", None])
def test_bad_checkpoints(tmp_path, content):
    path = tmp_path / "checkpoint.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CheckpointError, match="checkpoint.npz: "):
        checkpoint.load(tmp_path)


def test_truncated_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.npz"
    checkpoint.save(path, "nerf", {}, {"a": np.arange(1000)})
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        checkpoint.load(path)


def test_checkpoint_of_another_format(tmp_path):
    path = tmp_path / "checkpoint.npz"
    checkpoint.save(path, "nerf", {"format": 99}, {})
    with pytest.raises(CheckpointError, match="'format' is 99"):
        checkpoint.load(path)


def test_json_has_no_infinities(tmp_path):
    write_json(tmp_path / "m.json", {"a": [math.inf, 1.23456789], "b": {"c": math.nan}})
    assert json.loads((tmp_path / "m.json").read_text()) == {
        "a": [None, 1.234568],
        "b": {"c": None},
    }


def test_run_folders(tmp_path):
    assert run_folder(tmp_path, None, "chair") == tmp_path / "chair"
    (tmp_path / "chair").mkdir()
    assert run_folder(tmp_path, None, "chair") == tmp_path / "chair-2"
    assert run_folder(tmp_path, "chair", "x") == tmp_path / "chair"  # empty: nothing is lost
    (tmp_path / "chair" / "checkpoint.npz").touch()
    with pytest.raises(ProgramError, match="--overwrite"):
        run_folder(tmp_path, "chair", "x")
    assert run_folder(tmp_path, "chair", "x", overwrite=True) == tmp_path / "chair"


def test_psnr():
    truth = np.random.default_rng(0).random((8, 8, 3))
    assert psnr(truth, truth) == math.inf
    assert psnr(truth + 0.1, truth) == pytest.approx(20)
    assert psnr(truth + 0.01, truth) == pytest.approx(40)


def ssim_oracle(a: np.ndarray, b: np.ndarray) -> float:
    """Wang et al. 2004 with an 11x11 Gaussian of 1.5 pixels, the windows wholly inside, float64."""
    offsets = np.arange(11) - 5
    line = np.exp(-(offsets**2) / (2 * 1.5**2))
    window = np.outer(line, line) / line.sum() ** 2

    def blur(image):
        patches = np.lib.stride_tricks.sliding_window_view(image, (11, 11), axis=(0, 1))
        return (patches * window).sum(axis=(-2, -1))

    mean_a, mean_b = blur(a), blur(b)
    var_a, var_b = blur(a * a) - mean_a**2, blur(b * b) - mean_b**2
    covariance = blur(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    top = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    return float((top / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))).mean())


def test_ssim_against_the_paper():
    generator = np.random.default_rng(0)
    truth = generator.random((20, 24, 3))
    noisy = np.clip(truth + generator.normal(0, 0.2, truth.shape), 0, 1)
    assert ssim(truth, truth) == pytest.approx(1)
    assert ssim(noisy, truth) == pytest.approx(ssim_oracle(noisy, truth), abs=1e-4)


def test_ssim_of_tiny_pictures():
    picture = np.random.default_rng(0).random((6, 8, 3))
    assert ssim(picture, picture) == pytest.approx(1)


def test_on_background():
    pixel = np.array([[[200, 100, 0, 51]]], np.uint8)  # alpha 0.2
    expected = np.array([200, 100, 0]) / 255 * 0.2 + 0.8
    np.testing.assert_allclose(on_background(pixel, (1, 1, 1))[0, 0], expected, rtol=1e-6)
