"""Malformed or hostile files: one sentence with file and field, exit code 2, bounded memory, no waiting."""

from __future__ import annotations

import json
import os
import socket
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metal_ops import cli
from metal_ops.nerf.config import LIMITS, ModelConfig, TrainConfig
from metal_ops.nerf.errors import SceneError
from metal_ops.nerf.model import RadianceField
from metal_ops.nerf.pictures import _stems
from metal_ops.nerf.scenes import load_scene, origin_from
from metal_ops.nerf.scenes.common import shrink
from metal_ops.nerf.train import Trainer
from metal_ops.programs import checkpoint, reading
from metal_ops.programs.errors import ProgramError
from metal_ops.programs.reading import open_npz
from metal_ops.programs.records import configs_from
from tests.processes import Process
from tests.saved.make import HERE as SAVED
from tests.saved.make import nerf_trainer

from . import scenes_on_disk as disk

TRAIN = "transforms_train.json"


def nerf(*arguments: object) -> int:
    return cli.main(["nerf", *map(str, arguments)])


@pytest.fixture
def blender(tmp_path, still_life) -> Path:
    return disk.blender(tmp_path / "toy", still_life, train=2, test=1)


def refused(capsys, *arguments: object) -> str:
    """The sentence that a command ends with."""
    assert nerf(*arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("nerf: ") and error.endswith((".\n", "?\n"))
    assert error.count("\n") == 1 and len(error) < 5000
    return error


def test_the_files_that_are_damaged_below_are_right(blender):
    assert len(load_scene(blender).train) == 2


# ---- transforms.json ------------------------------------------------------------------------------------------------


def text(edit: Callable[[str], str]) -> Callable[[Path], Path]:
    def damage(folder: Path) -> Path:
        path = folder / TRAIN
        path.write_text(edit(path.read_text()))
        return folder

    return damage


def field(name: str, literal: str) -> Callable[[Path], Path]:
    """A field of the file, or "frames.<name>" of its second frame, as it stands in the text."""

    def edit(old: str) -> str:
        content = json.loads(old)
        target = content["frames"][1] if name.startswith("frames.") else content
        target[name.removeprefix("frames.")] = "@"
        return json.dumps(content).replace('"@"', literal)

    return text(edit)


def pose(literal: str) -> Callable[[Path], Path]:
    return field("frames.transform_matrix", f"[[1,0,0,{literal}],[0,1,0,0],[0,0,1,0],[0,0,0,1]]")


LONG = "9" * 5000
DEEP = "[" * 100_000
JSON = {
    # The change of the file, and words of the sentence.
    "angle of 5000 digits": (field("camera_angle_x", LONG), "'camera_angle_x' must be a finite"),
    "angle of 400 digits": (field("camera_angle_x", "9" * 400), "'camera_angle_x' must be a finite"),
    "NaN": (field("camera_angle_x", "NaN"), "'camera_angle_x' must be a finite number, got nan"),
    "Infinity": (field("camera_angle_x", "-Infinity"), "'camera_angle_x' must be a finite number"),
    "angle of almost nothing": (field("camera_angle_x", "1e-320"), "'camera_angle_x' must lie"),
    "angle is a list": (field("camera_angle_x", f"[{'0,' * 10**5}0]"), "'camera_angle_x' must be"),
    "angle of true": (field("camera_angle_x", "true"), "'camera_angle_x' must be a finite number"),
    "deep list": (field("camera_angle_x", DEEP), "lie too deep in one another"),
    "deep and closed": (field("camera_angle_x", DEEP + "]" * 100_000), "lie too deep"),
    "deep objects": (field("camera_angle_x", '{"a":' * 100_000), "lie too deep"),
    "field twice": (
        text(lambda old: old.replace("{", '{"camera_angle_x": 1, "camera_angle_x": 0.7, ', 1)),
        "field 'camera_angle_x' stands there twice",
    ),
    "field of a frame twice": (
        text(lambda old: old.replace('"file_path"', '"file_path": "a", "file_path"', 1)),
        "field 'file_path' stands there twice",
    ),
    "millions of frames": (field("frames", "[" + "{}," * 2_000_000 + "{}]"), "lists 2000001 frames"),
    "frames of nothing": (field("frames", "[null]"), "frames[0]: expected an object"),
    "frames is text": (field("frames", '"all"'), "'frames' must be a list"),
    "larger than memory": (
        lambda folder: (os.truncate(folder / TRAIN, 1 << 40), folder)[1],
        "is larger than 32 MiB",
    ),
    "another encoding": (
        lambda folder: ((folder / TRAIN).write_bytes(b'{"a": "\xff"}'), folder)[1],
        "byte 7 is not UTF-8",
    ),
    "only bytes of zero": (text(lambda _: "\0" * 1000), "not valid JSON at line 1"),
    "no file path": (field("frames.file_path", "[]"), "frames[1]: field 'file_path' must be"),
    "empty path": (field("frames.file_path", '""'), "frames[1]: field 'file_path' must be"),
    "path of a megabyte": (field("frames.file_path", json.dumps("a" * 10**6)), "'file_path' must"),
    "name too long": (field("frames.file_path", json.dumps("a" * 1000)), "File name too long"),
    "path with NUL": (field("frames.file_path", '"a\\u0000b"'), "cannot hold such characters"),
    "path with a surrogate": (field("frames.file_path", '"a\\ud800"'), "cannot hold such"),
    "path with lines": (field("frames.file_path", '"a\\n\\u001b[2Jb"'), "a\\n\\x1b[2Jb.png: no such"),
    "path is a folder": (field("frames.file_path", '"."'), "toy.png: no such image file"),
    "path goes up": (field("frames.file_path", '".."'), "...png: no such image file"),
    "pose of text": (pose('"1"'), "frames[1].transform_matrix (./train/r_1): expected a 4x4 matrix"),
    "pose of true": (pose("true"), "expected a 4x4 matrix of numbers"),
    "pose of null": (pose("null"), "expected a 4x4 matrix of numbers"),
    "pose of 400 digits": (pose("9" * 400), "not finite"),
    "pose of 1e999": (pose("1e999"), "not finite"),
    "pose beyond float32": (pose("1e300"), "holds a value above 1e+09"),
    "pose of 400,000": (
        field("frames.transform_matrix", f"[{'[0,0,0,0],' * 10**5}[0]]"),
        "expected a 4x4 matrix of numbers",
    ),
    "pose is deep": (
        field("frames.transform_matrix", "[" * 900 + "]" * 900),
        "expected a 4x4 matrix of numbers",
    ),
    "thousands of unknown fields": (
        text(lambda old: old.replace("{", "{" + "".join(f'"x{i}":0,' for i in range(20000)), 1)
             .replace("camera_angle_x", "camera_angle")),
        "unknown field 'camera_angle'; is 'camera_angle_x' meant?",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", JSON)
def test_json(case, blender, tmp_path, capsys):
    damage, expected = JSON[case]
    error = refused(capsys, "train", "--data", damage(blender), "--runs", tmp_path / "runs")
    assert expected in error and str(tmp_path / "toy") in error
    assert not (tmp_path / "runs").exists()


def test_many_unknown_fields_are_a_short_note(blender):
    more = ", ".join(f'"{"n" * 1000}{i}": 0' for i in range(5000))
    text(lambda old: old.replace("{", "{" + more + ", ", 1))(blender)
    (note,) = load_scene(blender).notes
    assert note.endswith("and 4980 more.") and len(note) < 1000


NGP = {
    "aabb_scale": ("1e308", "'aabb_scale' must lie between 1 and 1024"),
    "scale": ("1e-300", "'scale' must lie between"),
    "offset": ("[0, 0, 1e300]", "'offset' must lie between"),
    "fl_x": ("1e-300", "'fl_x' must lie between"),
    "w": ("1e300", "'w' must lie between"),
    "k1": ("1e300", "'k1' must lie between"),
    "k4": ("[[[[0]]]]", "'k4' must be a finite number, got [[[[0]]]]"),
    "is_fisheye": ('{"a": "' + "b" * 10**6 + '"}', "'is_fisheye' = {'a': 'bbbb"),
    "camera_angle_y": ("NaN", "'camera_angle_y' must be a finite number"),
    "cx": ("null", "'cx' is missing"),
    "frames": ("{}", "'frames' must be a list"),
}


@pytest.mark.parametrize("name", NGP)
def test_photographs(name, tmp_path, still_life):
    literal, expected = NGP[name]
    folder = disk.instant_ngp(tmp_path / "photos", still_life.train)
    path = folder / "transforms.json"
    content = json.loads(path.read_text()) | {name: "@"}
    if name.startswith("camera_angle"):
        del content["fl_x"], content["fl_y"]
    path.write_text(json.dumps(content).replace('"@"', literal))
    with pytest.raises(SceneError) as caught:
        load_scene(folder)
    assert expected in str(caught.value) and "transforms.json" in str(caught.value)
    assert len(str(caught.value)) < 1000


# ---- images ---------------------------------------------------------------------------------------------------------


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, rows: bytes, *more: bytes) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    parts = [chunk(b"IHDR", head), *more, chunk(b"IDAT", rows), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


ROWS = zlib.compress((b"\0" + b"\1" * 48 * 4) * 48)
BROKEN = bytearray(ROWS)
BROKEN[len(BROKEN) // 2] ^= 0xFF
ZEROS = zlib.compress(bytes(1 << 27))  # 128 MiB in 128 KiB
IMAGES: dict[str, tuple[bytes, str | None]] = {
    "as it should be": (png(48, 48, ROWS), None),
    "corrupt deflate": (png(48, 48, bytes(BROKEN)), "not a readable image"),
    "no deflate at all": (png(48, 48, b"\xff" * 500), "not a readable image"),
    "declares 60000x60000": (png(60000, 60000, ZEROS), "declares more than 134217728 pixels"),
    "declares 2^31-1": (png((1 << 31) - 1, (1 << 31) - 1, ROWS), "declares more than 134217728"),
    "declares 11600x11600": (png(11600, 11600, ZEROS), "declares more than 134217728 pixels"),
    "more rows than declared": (png(48, 48, ZEROS), None),
    "a bomb in its text": (
        png(48, 48, ROWS, chunk(b"zTXt", b"a\0\0" + ZEROS)),
        "not a readable image",
    ),
    "a bomb in its colours": (png(48, 48, ROWS, chunk(b"iCCP", b"a\0\0" + ZEROS)), "not a readable image"),
    "no rows": (png(48, 48, b""), "not a readable image"),
    "width 0": (png(0, 48, ROWS), "not a readable image"),
    "PostScript, which is a program": (b"%!PS-Adobe-3.0 EPSF-3.0\n" * 9, "expected one of PNG, JPEG"),
    "text": (b"hello" * 100, "not a readable image; expected one of PNG, JPEG"),
    "a JPEG's beginning": (b"\xff\xd8\xff\xe0\0\x10JFIF" + bytes(100), "not a readable image"),
}  # fmt: skip


@pytest.mark.parametrize("case", IMAGES)
def test_images(case, blender):
    content, expected = IMAGES[case]
    path = blender / "train" / "r_1.png"
    path.write_bytes(content)
    if expected is None:
        assert load_scene(blender).train.images.shape == (2, 48, 48, 4)
        return
    with pytest.raises(SceneError) as caught:
        load_scene(blender)
    message = str(caught.value)
    assert expected in message and str(path) in message and len(message) < 500


def test_more_pixels_than_memory(blender, monkeypatch):
    monkeypatch.setattr(reading, "memory", lambda: 100_000)
    with pytest.raises(
        SceneError, match=r"'frames', 2 images of 48x48 .* GiB; use a larger --down"
    ):
        load_scene(blender)


def test_shrinking_in_bands_changes_nothing(monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, [60, 40, 4], np.uint8)
    whole = shrink(pixels, 2, "x")
    monkeypatch.setattr("metal_ops.nerf.scenes.common._BAND_PIXELS", 40 * 2 * 7)  # 30 rows by 7
    np.testing.assert_array_equal(shrink(pixels, 2, "x"), whole)


# ---- what is no file ------------------------------------------------------------------------------------------------


def fifo(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    there = os.getcwd()
    os.chdir(path.parent)  # its address may have 107 bytes
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(there)


PLACES = {
    "transforms_train.json": "a file of JSON",
    "train/r_1.png": "an image",
    "tiny.npz": "the data itself",
    "checkpoint.npz": "a checkpoint",
}
NO_FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "pipe": (fifo, "is a pipe"),
    "folder": (Path.mkdir, "is a folder"),
    "socket": (unix_socket, "is a socket"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "is a device"),
    "circle of links": (lambda path: path.symlink_to(path.name), "symbolic links go in a circle"),
    "link to nothing": (lambda path: path.symlink_to("nowhere"), "no such"),
}


@pytest.mark.parametrize("kind", NO_FILES)
@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_file(place, kind, blender, tmp_path, capsys):
    make, expected = NO_FILES[kind]
    path = blender / place
    path.unlink(missing_ok=True)
    make(path)
    if place == "checkpoint.npz":
        arguments = ["eval", blender]
    else:
        arguments = ["train", "--data", path if place == "tiny.npz" else blender]
        arguments += ["--runs", tmp_path / "runs"]
    error = refused(capsys, *arguments)
    if place == "transforms_train.json" and kind == "link to nothing":
        expected = "neither transforms_train.json"
    if place == "tiny.npz" and kind == "folder":
        expected = "neither transforms_train.json"
    assert expected in error and str(blender) in error
    assert not (tmp_path / "runs").exists()


def test_names_that_are_too_long_or_no_text(tmp_path, capsys):
    long = tmp_path / ("a" * 300)
    assert "File name too long" in refused(capsys, "train", "--data", long)
    assert "File name too long" in refused(capsys, "train", "--runs", long / "runs")
    assert "File name too long" in refused(capsys, "eval", long)
    bad = os.fsdecode(b"sc\xffne\n.npz")
    assert r"sc\udcffne\n.npz: no such file" in refused(capsys, "train", "--data", tmp_path / bad)
    for name in ("a" * 101, bad, "a\nb"):
        with pytest.raises(SystemExit) as caught:
            nerf("train", "--name", name)
        assert caught.value.code == 2 and "plain folder name" in capsys.readouterr().err


def test_a_file_where_the_folder_of_a_run_belongs(tmp_path, capsys):
    path = tmp_path / "checkpoint.npz"
    path.write_bytes((SAVED / "0.1.0" / "nerf.npz").read_bytes())
    assert "is a file; give the folder of the run" in refused(capsys, "eval", path)


def test_names_that_are_markup_to_somebody(tmp_path, still_life, capsys):
    """rich, str.format, matplotlib and UTF-8 all see the names of folders and views."""
    name = "[b] {task} %s {0} $\\frac$ ~ \udcff\n\x1b[31m :smile:"
    folder = disk.blender(tmp_path / name, still_life, train=2, test=2)
    for split in ("train", "test"):
        path = folder / f"transforms_{split}.json"
        content = json.loads(path.read_text())
        target = (
            folder / split / "[" / f"b] {name}.png"
        )  # "[/b]" ends a style that nothing has begun
        target.parent.mkdir()
        target.write_bytes((folder / split / "r_1.png").read_bytes())
        content["frames"][1]["file_path"] = str(target.relative_to(folder))
        path.write_text(json.dumps(content))
    small = "--levels 2 --log2-hashmap-size 6 --samples 256 --steps 1 --frames 1".split()
    runs = tmp_path / "runs"
    assert nerf("train", "--data", folder, *small, "--runs", runs, "--name", "run") == 0
    metrics = json.loads((runs / "run" / "metrics.json").read_text())
    assert metrics["scene"] == r"[b] {task} %s {0} $\frac$ ~ \udcff\n\x1b[31m :smile:"
    assert nerf("eval", runs / "run") == 0
    assert "test/[/b] [b] {task}" in capsys.readouterr().out.replace("\n", "")
    assert nerf("render", runs / "run", "--what", "views", "--size", 8) == 0
    assert len(list((runs / "run" / "views").iterdir())) == 2


def test_equal_stems_stay_apart():
    assert _stems(["./train/r_0", "./train/r_1.5"]) == ["r_0", "r_1"]
    assert _stems(["a/0.png", "b/0.png", "b/0.jpg", "/"]) == ["a_0", "b_0", "b_0-2", "view"]
    assert _stems(["../a/x.png", "a/../x.png", "a/x.png"]) == ["a_x", "a_x-2", "a_x-3"]
    names = _stems([".hidden", "", "..", "a" * 500, "\n\0/", "\ud800"])
    assert len(set(names)) == 6 and all(0 < len(name) <= 103 for name in names)
    assert all(name.isprintable() and not name.startswith(".") for name in names)


# ---- .npz -----------------------------------------------------------------------------------------------------------


def npy(
    array: np.ndarray | None = None, descr: str = "<f8", shape: str = "()", data: bytes = b""
) -> bytes:
    if array is None:
        head = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
        head += b" " * (63 - (len(head) + 10) % 64) + b"\n"
        return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + data
    import io

    file = io.BytesIO()
    np.lib.format.write_array(file, array)
    return file.getvalue()


GOOD = {
    "images": npy(np.zeros([2, 4, 4, 3])),
    "poses": npy(np.tile(np.eye(4), (2, 1, 1))),
    "focal": npy(np.float64(5)),
}


def archive(path: Path, kind: int = zipfile.ZIP_DEFLATED, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", kind) as file:
        for name, data in {**GOOD, **members}.items():
            file.writestr(f"{name}.npy", data)
    return path


def corrupted(path: Path) -> Path:
    """One byte inside of the packed images."""
    archive(path, images=npy(np.random.default_rng(0).random([2, 4, 4, 3])))
    data = bytearray(path.read_bytes())
    data[200] ^= 0xFF
    path.write_bytes(data)
    return path


def encrypted(path: Path) -> Path:
    archive(path)
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    return path


def twice(path: Path) -> Path:
    archive(path)
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("focal.npy", GOOD["focal"])
    return path


def table_of_contents(path: Path) -> Path:
    """A million entries of nothing."""
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", *[0] * 16, 0, 0)[:46]
    entries = entry * 200_000
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(entries), 0, 0)
    path.write_bytes(entries + end)
    return path


OBJECTS = npy(descr="|O", shape="(1,)", data=b"\x80\x04cos\nsystem\n")
NPZ: dict[str, tuple[Callable[[Path], Path], str]] = {
    "pickled objects": (lambda p: archive(p, focal=OBJECTS), "array 'focal' holds pickled Python"),
    "pickled objects nobody asked for": (lambda p: archive(p, more=OBJECTS), "'more' holds pickled"),
    "corrupt deflate": (corrupted, "not a readable .npz file"),
    "declares a terabyte": (
        lambda p: archive(p, images=npy(descr="<f4", shape="(2, 300000, 300000, 4)", data=b"1234")),
        "array 'images' declares 2880000000000 bytes (float32 [2, 300000, 300000, 4]), and the file has 4",
    ),
    "declares more than 64 bits": (
        lambda p: archive(p, images=npy(shape=f"({10**30}, 3, 4, 4)")),
        "array 'images' declares",
    ),
    "negative": (lambda p: archive(p, images=npy(shape="(-1, 4, 4, 3)")), "declares the shape"),
    "too little": (lambda p: archive(p, focal=npy(shape="(1,)", data=b"1234")), "'focal' declares 8"),
    "too much": (lambda p: archive(p, focal=npy(np.float64(5)) + b"more"), "'focal' declares 8"),
    "shape is text": (lambda p: archive(p, focal=npy(shape="'a'")), "not a readable .npz file"),
    "shape is a program": (lambda p: archive(p, focal=npy(shape="exit()")), "not a readable .npz"),
    "deep header": (lambda p: archive(p, focal=npy(shape="(" * 5000)), "not a readable .npz file"),
    "format 3": (
        lambda p: archive(p, focal=GOOD["focal"].replace(b"NUMPY\1", b"NUMPY\3")),
        "array 'focal' has format (3, 0)",
    ),
    "no array": (lambda p: archive(p, focal=b"hello"), "not a readable .npz file"),
    "encrypted": (encrypted, "array 'images' is encrypted"),
    "LZMA": (lambda p: archive(p, zipfile.ZIP_LZMA), "array 'images' is packed in a way"),
    "twice": (twice, "array 'focal' is there twice"),
    "a thousand arrays": (
        lambda p: archive(p, **{f"a{i}": GOOD["focal"] for i in range(1000)}),
        "holds 1003 arrays",
    ),
    "no end of contents": (table_of_contents, "its table of contents is larger than 1 MiB"),
    "one array, no archive": (lambda p: (p.write_bytes(GOOD["poses"]), p)[1], "not a readable .npz"),
    "structures": (lambda p: archive(p, focal=npy(np.zeros(1, "f4,i4"))), "'focal' must hold numbers"),
    "times": (lambda p: archive(p, focal=npy(np.zeros(1, "M8[s]"))), "'focal' must hold numbers"),
    "complex": (lambda p: archive(p, focal=npy(np.complex64(5))), "'focal' must hold numbers"),
    "focal of 1e300": (lambda p: archive(p, focal=npy(np.float64(1e300))), "'focal' must be one"),
    "pose of 1e300": (
        lambda p: archive(p, poses=npy(np.full([2, 4, 4], 1e300))),
        "poses[0]: holds a value above 1e+09",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NPZ)
def test_npz(case, tmp_path, capsys):
    make, expected = NPZ[case]
    path = make(tmp_path / "tiny.npz")
    error = refused(capsys, "train", "--data", path, "--runs", tmp_path / "runs")
    assert expected in error and str(path) in error


def test_npz_that_is_right(tmp_path):
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        assert len(load_scene(archive(tmp_path / "tiny.npz", kind)).test) == 1
    big_endian = npy(np.zeros([2, 4, 4, 3], ">f2"))
    fortran = npy(np.asfortranarray(np.tile(np.eye(4), (2, 1, 1))))
    scene = load_scene(archive(tmp_path / "tiny.npz", images=big_endian, poses=fortran))
    np.testing.assert_array_equal(scene.train.cameras.poses[0], np.eye(4)[:3])


def test_npz_larger_than_memory(tmp_path, monkeypatch):
    """A kilobyte in the file for each megabyte in memory; said before any of it is unpacked."""
    monkeypatch.setattr(reading, "memory", lambda: 1 << 24)
    bomb = npy(np.zeros([2, 1000, 1000, 4], np.uint8))
    path = archive(tmp_path / "tiny.npz", images=bomb)
    assert path.stat().st_size < 20_000
    with pytest.raises(
        SceneError, match=r"'images', 2 of 1000x1000 pixels would take .* this machine has 0.0"
    ):
        load_scene(path)


# ---- checkpoints ----------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path) -> Path:
    """The folder of a small run."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "checkpoint.npz").write_bytes((SAVED / "0.1.0" / "nerf.npz").read_bytes())
    return folder


def rewrite(folder: Path, edit: Callable[[dict[str, Any], dict[str, np.ndarray]], Any]) -> None:
    """Another header, or its text, or other arrays."""
    header, arrays = checkpoint.load(folder)
    header = edit(header, arrays) or header
    text = header if isinstance(header, str) else json.dumps(header)
    np.savez(folder / "checkpoint.npz", **{"header": np.array(text), **arrays})


def put(*place: str, value: Any) -> Callable[..., None]:
    def edit(header: dict[str, Any], _: dict[str, np.ndarray]) -> None:
        for name in place[:-1]:
            header = header[name]
        header[place[-1]] = value

    return edit


def array(name: str, value: Any) -> Callable[..., None]:
    return lambda _, arrays: arrays.__setitem__(name, np.asarray(value))


CHECKPOINTS: dict[str, tuple[Callable[..., Any], str]] = {
    **{
        f"header is {text[:9]}": (lambda h, a, text=text: text, "header: expected a JSON object")
        for text in ("[]", "null", "1", '"text"', "true", "1e999", LONG)
    },
    "header is no JSON": (lambda h, a: "{", "header: not valid JSON at line 1"),
    "header is deep": (lambda h, a: DEEP, "lie too deep"),
    "header says it twice": (lambda h, a: '{"format": 1, "format": 1}', "'format' stands there twice"),
    "no format": (put("format", value=None), "'format' is None, this version reads 1"),
    "format is long": (put("format", value=["x" * 10**6]), "field 'format' is ['xxx"),
    "header is an array": (array("header", [1, 2]), "array 'header' must be one text"),
    "header is bytes": (array("header", b"{}"), "array 'header' must be one text"),
    "no header": (lambda h, a: a.__setitem__("header", np.zeros([])), "'header' must be one text"),
    **{
        f"{name} is {value!r}"[:40]: (put(name, value=value), f"field '{name}' must be")
        for name in ("model", "train")
        for value in (None, [], 5, "hash", True)
    },
    **{
        f"{name} is {value!r}"[:40]: (put(name, value=value), f"field '{name}' must be")
        for name in ("step", "seconds", "n_rays", "rays_seen", "samples_seen", "downscale", "size")
        for value in ("1", True, [1], {}, -1, 1e300, float("nan"), 10**400)
    },
    "step is a fraction": (put("step", value=1.5), "field 'step' must be"),
    "no step": (lambda h, a: h.pop("step") and None, "field 'step' must be"),
    "data is a number": (put("data", value=5), "field 'data' must be a path"),
    "data is nowhere": (put("data", value="/nowhere\n"), r"/nowhere\n: no such file"),
    "data has NUL": (put("data", value="a\0b"), "cannot hold such characters"),
    "history is text": (put("history", value="long"), "field 'history' must be a list"),
    "history of text": (put("history", value=["a"]), "got 'a' in place 0"),
    "history of lists": (put("history", value=[{"psnr": []}]), "in place 0"),
    "history without time": (put("history", value=[{"psnr": 1.0}]), "place 0 has no 'seconds'"),
    "unknown field of the model": (put("model", "x\n", value=1), r"has 'x\n', which this version"),
    "unknown encoding": (put("model", "encoding", value="wave"), "'encoding' must be one of hash"),
    "encoding is a list": (put("model", "encoding", value=[]), "'encoding' must be one of hash"),
    "levels of text": (put("model", "n_levels", value="16"), "'n_levels' must be a whole number"),
    "levels of true": (put("model", "n_levels", value=True), "'n_levels' must be a whole number"),
    "a billion levels": (put("model", "n_levels", value=10**9), "from 1 to 32, got 1000000000"),
    "rows beyond memory": (put("model", "log2_hashmap_size", value=60), "'log2_hashmap_size' must"),
    "features of 3": (put("model", "n_features_per_level", value=3), "must be one of 1, 2, 4, 8"),
    "precision of 1": (put("model", "mixed_precision", value=1), "must be true or false"),
    "finest is coarser": (
        lambda h, a: h["model"].update(base_resolution=64, finest_resolution=2, n_levels=3),
        "the configuration of the hash grid makes no sense",
    ),
    "steps of 1e300": (put("train", "steps", value=1e300), "'steps' must be a whole number"),
    "NaN seconds": (put("train", "seconds", value=float("nan")), "'seconds' must be a number"),
    "marches for ever": (put("train", "samples_per_diagonal", value=10**9), "'samples_per_diagonal'"),
    "an array is missing": (lambda h, a: a.pop("model/table") is None, "'model/table' is missing"),
    "an array of another shape": (array("model/table", np.zeros(3, "f4")), "has shape [3], expected"),
    "an array of another dtype": (array("model/table", np.zeros([8, 2])), "has dtype float64"),
    "an array of text": (array("model/table", ["a"]), "array 'model/table' must hold finite numbers"),
    "an array of NaN": (array("model/table", np.full([8, 2], np.nan, "f4")), "must hold finite"),
}  # fmt: skip


@pytest.fixture(scope="module")
def trainer() -> Trainer:
    return nerf_trainer()


def read(folder: Path, trainer: Trainer) -> None:
    """The reads of `eval` from a checkpoint, without tracing a model each time."""
    header, arrays = checkpoint.load(folder)
    model, _ = configs_from(header, str(folder), ModelConfig, TrainConfig)
    origin = origin_from(header, str(folder))
    if origin["data"] is not None:
        load_scene(origin["data"])
    if model != trainer.model_config:
        RadianceField(model)
    trainer.load(header, arrays, str(folder))


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_checkpoints(case, saved, trainer):
    edit, expected = CHECKPOINTS[case]
    rewrite(saved, edit)
    with pytest.raises(ProgramError) as caught:
        read(saved, trainer)
    error = str(caught.value)
    assert expected in error and "\n" not in error and len(error) < 1000
    if "finest" not in case and "data" not in case:
        assert str(saved) in error


def test_a_bad_checkpoint_ends_the_program_with_2(saved, capsys):
    rewrite(saved, put("step", value="1"))
    error = refused(capsys, "eval", saved)
    assert (
        "checkpoint.npz: header: field 'step' must be a number from 0 to 2.14748e+09, got '1'"
        in error
    )


def test_the_checkpoint_that_is_damaged_above_is_right(saved, trainer):
    rewrite(saved, lambda header, arrays: None)
    read(saved, trainer)
    assert trainer.step == 4


def test_a_table_beyond_memory(monkeypatch):
    monkeypatch.setattr(reading, "memory", lambda: 1 << 20)
    with pytest.raises(
        ProgramError, match="a hash table of .* GiB; use a smaller --log2-hashmap-size"
    ):
        RadianceField(ModelConfig(finest_resolution=64))


def test_every_limit_is_a_field_and_is_kept():
    for kind in (ModelConfig, TrainConfig):
        for name, (least, most) in LIMITS.items():
            if not hasattr(kind(), name):
                continue
            kind(**{name: type(getattr(kind(), name) or 1)(most)})
            for value in (least - 1, most * 2 + 1, "1", [], float("nan")):
                with pytest.raises(ValueError, match=f"field '{name}' must be"):
                    kind(**{name: value})


# ---- memory and time ------------------------------------------------------------------------------------------------

# All of the bombs above, one after the other, in a process whose largest size is looked at.
BOMBS = """
import json, resource, sys
from pathlib import Path
from metal_ops.programs.errors import ProgramError
from metal_ops.nerf.scenes import load_scene
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before, refused = peak(), 0
for path in sys.argv[1:]:
    try:
        load_scene(Path(path))
    except ProgramError:
        refused += 1
print(json.dumps({"refused": refused, "MiB": (peak() - before) // 1024}))
"""


def test_bombs_do_not_take_memory(tmp_path, still_life):
    paths = []
    for number, content in enumerate(
        [IMAGES[name][0] for name in IMAGES if "declares" in name or "bomb" in name]
    ):
        folder = disk.blender(tmp_path / f"image{number}", still_life, 2, 1)
        (folder / "train" / "r_1.png").write_bytes(content)
        paths.append(folder)
    for number, name in enumerate(("millions of frames", "deep list", "larger than memory")):
        folder = disk.blender(tmp_path / f"json{number}", still_life, 2, 1)
        paths.append(JSON[name][0](folder))
    for number, name in enumerate(("declares a terabyte", "no end of contents", "deep header")):
        paths.append(NPZ[name][0](tmp_path / f"{number}.npz"))
    result = Process("-c", BOMBS, *map(str, paths)).result()
    # Six megabytes of frames take 500 in Python.
    assert result["refused"] == len(paths) == 11
    assert result["MiB"] < 1000


def test_reading_is_inside_of_what_is_reported(tmp_path):
    """Errors of the file's own come out as they are."""
    with (
        pytest.raises(ProgramError, match="mine"),
        open_npz(archive(tmp_path / "a.npz"), ProgramError, "x"),
    ):
        raise ProgramError("mine")
