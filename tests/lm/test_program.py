"""The program: its files, mistakes, Ctrl-C, text in a terminal."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from metal_ops import cli
from metal_ops.lm import text
from metal_ops.lm.run import stream
from metal_ops.lm.train import Trainer
from tests.interrupts import interrupt
from tests.suites import at_depth

SIZES = "--width 16 --layers 1 --heads 2 --kv-heads 1 --hidden 16 --context 32 --batch 2".split()


def lm(*arguments: object) -> int:
    return cli.main(["lm", *map(str, arguments)])


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "book.txt"
    path.write_bytes(b"One \xc3\xa4 two, three; four. " * 200)
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory, book) -> Path:
    """The folder of a run of 6 steps."""
    runs = tmp_path_factory.mktemp("runs")
    options = ["--data", book, "--steps", 6, "--runs", runs, "--name", "toy"]
    assert lm("train", *SIZES, *options) == 0
    return runs / "toy"


def test_a_run_leaves_its_files(finished, book):
    names = {"attention.png", "checkpoint.npz", "loss.png", "metrics.json", "sample.txt"}
    assert {file.name for file in finished.iterdir()} == names
    metrics = json.loads((finished / "metrics.json").read_text())
    assert metrics["steps"] == 6 and not metrics["interrupted"] and metrics["data"] == str(book)
    assert metrics["bytes_seen"] == 6 * 2 * 32 and 0 < metrics["bits_a_byte"] < 10
    assert metrics["history"][-1]["held_out"] == pytest.approx(metrics["bits_a_byte"], abs=1e-5)
    for name in ("loss.png", "attention.png"):
        with Image.open(finished / name) as picture:
            assert min(picture.size) > 200 and np.asarray(picture.convert("L")).std() > 10


def test_generate(finished, capfdbinary):
    texts = []
    dynamic = ["--bits", 8, "--dynamic"]
    for options in ([], [], ["--seed", 1], ["--bits", 8], ["--temperature", 0], dynamic):
        assert lm("generate", finished, "One", "--bytes", 40, *options) == 0
        out, said = capfdbinary.readouterr()
        assert b"One" in out and re.search(rb"40 bytes written, \d+ a second", said)
        texts.append(out)
    assert texts[0] == texts[1] != texts[2]
    assert b"Weights of 8 bits" in texts[3] and b"Weights of 8 bits" in texts[5]


def test_dynamic_wants_quantized_matrices(finished, capsys):
    assert lm("generate", finished, "One", "--dynamic") == 2
    assert "--bits 4 or --bits 8" in capsys.readouterr().err


def test_chat(finished, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("One\nTwo\n"))
    assert lm("chat", finished, "--bytes", 30) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 2


def test_resume(finished, book, tmp_path):
    """As if it had never stopped; and not beyond its budget."""
    folder = tmp_path / "a"
    options = [*SIZES, "--data", book, "--runs", tmp_path]
    assert lm("train", *options, "--name", "a", "--steps", 3) == 0
    assert lm("train", "--resume", folder) == 2
    assert lm("train", "--resume", folder, "--steps", 6) == 0
    assert json.loads((folder / "metrics.json").read_text())["steps"] == 6


def test_ctrl_c_leaves_everything(book, tmp_path, monkeypatch, capsys):
    interrupt(Trainer, monkeypatch)
    options = ["--data", book, "--runs", tmp_path, "--name", "a", "--steps", 1000]
    assert lm("train", *SIZES, *options) == 130
    assert "Stopped; writing the checkpoint" in capsys.readouterr().out
    metrics = json.loads((tmp_path / "a" / "metrics.json").read_text())
    assert metrics["steps"] == 3 and metrics["interrupted"]
    monkeypatch.undo()
    assert lm("train", "--resume", tmp_path / "a", "--steps", 4) == 0


def test_documentation_strings(monkeypatch):
    names = at_depth(["shutil", "json", "argparse"], sys.stdlib_module_names)
    monkeypatch.setattr(sys, "stdlib_module_names", frozenset(names))
    found = text.documentation()
    assert len(found) > at_depth(30_000, 500_000) and b"Return the" in found
    in_order = (b"Command-line parsing library", b"JSON (JavaScript", b"Copy data and mode bits")
    assert sorted(in_order, key=found.index) == list(in_order)


@pytest.mark.full("reads the sources of the standard library twice")
def test_documentation_strings_are_the_same_each_time():
    assert text.documentation() == text.documentation()


def test_text_comes_by_characters():
    out = io.StringIO()
    stream((bytes([byte]) for byte in "\u00e4 \u20ac".encode() + b"\xff."), out)
    assert out.getvalue() == "\u00e4 \u20ac\ufffd."
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="latin-1")
    stream(["\u00e4 \u20ac".encode(), b"\xff."], out)
    assert raw.getvalue() == b"\xe4 ??."


@pytest.mark.parametrize(
    "arguments, words",
    [
        (
            ["train", "--data", "nowhere.txt"],
            "nowhere.txt: no such file; give a file of text by --data",
        ),
        (["train", "--data", "."], ": is a folder; give a file"),
        (["train", "--data", "SHORT"], "has 5 bytes, at least 258 are needed"),
        (["train", "--width", "102"], "field 'width' must be an even multiple of the 4 heads"),
        (["train", "--kv-heads", "3"], "field 'kv_heads' must divide the 4 heads, got 3"),
        (["generate", "nowhere"], "nowhere: no such checkpoint|nowhere.*no such"),
        (["generate", "SHORT"], "is a file; give the folder of the run"),
        (["train", "--resume", "nowhere"], "no such"),
    ],
)
def test_mistakes(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "SHORT").write_bytes(b"short")
    assert lm(*arguments) == 2
    said = capsys.readouterr().err
    assert re.search(words, said) and said.startswith("lm: ") and len(said.splitlines()) == 1


def test_a_damaged_checkpoint(finished, tmp_path, capsys):
    with np.load(finished / "checkpoint.npz") as file:
        arrays = dict(file)
    cases = {
        "last_norm": (
            np.zeros(3, np.float32),
            r"array 'last_norm' has shape \[3\], expected \[16\]",
        ),
        "embedding": (None, "array 'embedding' is missing"),
    }
    for name, (change, words) in cases.items():
        damaged = {k: v for k, v in arrays.items() if k != name}
        if change is not None:
            damaged[name] = change
        np.savez(tmp_path / "checkpoint.npz", **damaged)
        assert lm("generate", tmp_path) == 2
        assert re.search(words, capsys.readouterr().err)


@pytest.mark.parametrize(
    "option", ["--temperature=11", "--top-p=2", "--top-k=-1", "--bits=3", "--bytes=0"]
)
def test_options_out_of_range(option, finished, capsys):
    with pytest.raises(SystemExit) as stopped:
        lm("generate", finished, option)
    assert stopped.value.code == 2 and option.split("=")[0] in capsys.readouterr().err
