"""Adapters by flag: training beside a run or a file, that the base stays, how they are saved, and mistakes."""

from __future__ import annotations

import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from metal_ops import QuantizedWeights, cli
from metal_ops.lm import adapted, pretrained
from metal_ops.lm.adapted import AdapterTrainer
from metal_ops.lm.config import ModelConfig, TrainConfig
from metal_ops.lm.model import Transformer
from metal_ops.programs import checkpoint
from metal_ops.programs.records import take_state
from tests.interrupts import interrupt
from tests.lm.files import random_model, write_gguf, write_safetensors
from tests.processes import Process

SIZES = "--width 32 --layers 2 --heads 2 --kv-heads 1 --hidden 32 --context 32 --batch 4".split()
TEXT = b"zebra QUARTZ 99 + 1! " * 150


def lm(*arguments: object) -> int:
    return cli.main(["lm", *map(str, arguments)])


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """runs/base, runs/other of the same sizes, runs/mine with an adapter beside base, and the texts."""
    folder = tmp_path_factory.mktemp("adapters")
    (folder / "first.txt").write_bytes(b"One two, three; four. " * 150)
    (folder / "second.txt").write_bytes(TEXT)
    base, runs = folder / "runs" / "base", ["--runs", folder / "runs"]
    first, second = (["--data", folder / f"{name}.txt"] for name in ("first", "second"))
    assert lm("train", *SIZES, *first, "--steps", 30, *runs, "--name", "base") == 0
    model = ModelConfig(width=32, layers=2, heads=2, kv_heads=1, hidden=32, context=32)
    untrained(folder / "runs" / "other", model)
    (folder / "before").write_bytes((base / "checkpoint.npz").read_bytes())
    options = ["--batch", 4, "--rank", 4, "--steps", 40, *runs, "--name", "mine"]
    assert lm("train", "--adapters", base, *second, *options) == 0
    return folder


def untrained(folder: Path, config: ModelConfig) -> None:
    """A run's checkpoint with the weights of a seed."""
    folder.mkdir()
    header = {"model": vars(config), "train": vars(TrainConfig())}
    state = {name: value.numpy() for name, value in Transformer(config).state().items()}
    checkpoint.save(folder / "checkpoint.npz", "lm", header, state)


def base_of(place: Path) -> Transformer:
    header, arrays = checkpoint.load(place / "runs" / "base")
    model = Transformer(ModelConfig(**header["model"]))
    take_state(model.state(), arrays, "base")
    return model


def loss(model: Transformer, tokens: list[int]) -> float:
    pieces = tf.constant([tokens])
    logits = model(pieces[:, :-1])
    nats = tf.nn.sparse_softmax_cross_entropy_with_logits(pieces[:, 1:], logits)
    return float(tf.reduce_mean(nats))


def test_learns_another_text_beside_a_base_that_stays(place):
    base, mine = base_of(place), place / "runs" / "mine"
    both = adapted.load(base, mine)
    before, after = (loss(model, list(TEXT[:32])) for model in (base, both))
    assert after < 0.95 * before
    assert (place / "runs" / "base" / "checkpoint.npz").read_bytes() == (
        place / "before"
    ).read_bytes()
    with np.load(mine / "adapter.npz") as file:
        arrays = {name: file[name].shape for name in file if name != "about"}
    assert (
        len(arrays) == 2 * 2 * 4
    )  # A and B beside the four matrices of two layers, and nothing else
    assert all(4 in shape for shape in arrays.values())
    metrics = json.loads((mine / "metrics.json").read_text())
    assert metrics["parameters"] == sum(int(np.prod(shape)) for shape in arrays.values())
    assert (metrics["rank"], metrics["alpha"]) == (4, 8)
    names = {"adapter.npz", "attention.png", "loss.png", "metrics.json", "sample.txt"}
    assert {file.name for file in mine.iterdir()} == names


def trainer_of(model, tokenizer, seed: int = 0, context: int = 32) -> AdapterTrainer:
    text = np.frombuffer(TEXT, np.uint8)
    config = TrainConfig(seconds=None, steps=10, batch=2, seed=seed)
    return AdapterTrainer(
        (text[:-500], text[-500:]), model, tokenizer, config, context, 4, 8.0, "base"
    )


def written(path: Path, kind: str) -> Path:
    if kind == "safetensors":
        write_safetensors(path / "model", random_model())
        return path / "model"
    write_gguf(path / f"{kind}.gguf", random_model(), kind)
    return path / f"{kind}.gguf"


def weights(model: Transformer) -> list[np.ndarray]:
    found = []
    for layer in model.matrices:
        for matrix in layer.values():
            codes = isinstance(matrix, QuantizedWeights)
            found += [matrix.codes, matrix.scales] if codes else [matrix]
    norms = [norm for layer in model.norms for norm in layer.values()]
    return [np.array(one) for one in (*found, *norms, model.last_norm)]


@pytest.mark.parametrize("kind", ["run", "F32", "Q8_0", "Q4_1", "safetensors"])
def test_saved_and_loaded_equal(kind, place, tmp_path):
    if kind == "run":
        base, tokenizer = base_of(place), None
    else:
        base, tokenizer = pretrained.load(written(tmp_path, kind), None)
    kept = weights(base)
    trainer = trainer_of(base, tokenizer)
    before = trainer.held_out()
    while not trainer.done:
        trainer.train_step()
    assert trainer.held_out() < 0.98 * before
    for now, then in zip(weights(base), kept, strict=True):
        assert np.array_equal(now, then)
    trainer.save(tmp_path / "folder" / "adapter.npz", None)
    tokens = tf.constant([[72, 105, 33, 90, 7]])
    learnt, alone = trainer.model(tokens).numpy(), base(tokens).numpy()
    assert np.array_equal(adapted.load(base, tmp_path / "folder")(tokens), learnt)
    assert np.abs(learnt - alone).max() > 0.01


def test_the_same_bits_of_a_seed(place):
    found = []
    for seed in (1, 1, 2):
        trainer = trainer_of(base_of(place), None, seed)
        begins = [a.numpy() for a in trainer.variables[::2]]
        for _ in range(3):
            trainer.train_step()
        found.append([*begins, *(variable.numpy() for variable in trainer.variables)])
    first, again, other = found
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_what_is_measured_are_bits_a_byte(tmp_path):
    """For a model whose tokens are longer, too: fewer tokens than bytes, each of more bits."""
    base, tokenizer = pretrained.load(written(tmp_path, "F32"), None)
    text = np.frombuffer(b"the in the thin the " * 40, np.uint8)
    config = TrainConfig(seconds=None, steps=1, batch=2)
    trainer = AdapterTrainer((text, text[:400]), base, tokenizer, config, 16, 2, 4.0, "base")
    tokens = tokenizer.encode(text[:400].tobytes(), True)
    assert len(tokens) < 300
    pieces = [
        tokens[i : i + 17] for i in np.unique(np.linspace(0, len(tokens) - 17, 32).astype(int))
    ]
    right = np.mean([loss(base, piece) for piece in pieces]) / np.log(2) * len(tokens) / 400
    assert trainer.held_out() == pytest.approx(right, rel=1e-4)


def test_generate_and_chat(place, monkeypatch, capfdbinary):
    base, mine = place / "runs" / "base", ["--adapters", place / "runs" / "mine"]
    texts = []
    for options in ([], mine, ["--bits", 8], [*mine, "--bits", 8]):
        assert lm("generate", base, "zeb", "--temperature", 0, "--bytes", 40, *options) == 0
        texts.append(capfdbinary.readouterr().out.partition(b"zeb")[2])
    assert texts[0] != texts[1] and texts[2] != texts[3]
    monkeypatch.setattr(sys, "stdin", io.StringIO("zeb\n"))
    assert lm("chat", base, "--bytes", 30, *mine) == 0
    assert lm("generate", base, "--adapters", place / "runs" / "mine" / "adapter.npz") == 0


def test_one_trained_beside_floats_fits_beside_codes(place, tmp_path, capfd):
    """By the program, with a model from a file."""
    floats, codes = written(tmp_path, "F32"), written(tmp_path, "Q8_0")
    options = ["--data", place / "second.txt", "--steps", 5, "--batch", 2, "--context", 16]
    assert lm("train", "--adapters", floats, *options, "--runs", tmp_path, "--name", "a") == 0
    assert f"lm generate --model {floats} --adapters {tmp_path}/a" in capfd.readouterr().out
    assert not (tmp_path / "a" / "attention.png").exists()
    for model in (floats, codes):
        given = ["--model", model, "the", "--tokens", 8]
        assert lm("generate", *given, "--adapters", tmp_path / "a") == 0


def test_ctrl_c_leaves_an_adapter(place, tmp_path, monkeypatch):
    interrupt(AdapterTrainer, monkeypatch)
    options = ["--data", place / "second.txt", "--runs", tmp_path, "--name", "a", "--steps", 1000]
    assert lm("train", "--adapters", place / "runs" / "base", *options) == 130
    assert json.loads((tmp_path / "a" / "metrics.json").read_text())["steps"] == 3
    adapted.load(base_of(place), tmp_path / "a")


def test_on_the_device_it_learns_and_writes_the_same(place, tmp_path):
    """Adapter, text and chat of the Metal device beside those of the CPU; nothing runs where it is not to."""
    base, runs = place / "runs" / "base", ["--runs", tmp_path, "--steps", 6, "--batch", 4]
    options = ["train", "--adapters", base, "--data", place / "second.txt", "--rank", 4, *runs]
    mine = ["--adapters", place / "runs" / "mine", "--temperature", 0, "--bytes", 24]
    commands = [
        [*options, "--name", "metal"],
        ["generate", base, "zebra", *mine],
        ["chat", base, *mine],
    ]
    texts = [["lm", *map(str, one), "--device", "metal"] for one in commands]
    program = (
        "import io, sys\nfrom metal_ops import cli\nsys.stdin = io.StringIO('QUARTZ\\n')\n"
        f"for one in {texts!r}:\n    assert cli.main(one) == 0, one\n"
    )
    process = Process("-c", program, METAL_OPS_DEVICE_FALLBACK="error")
    assert lm(*options, "--name", "cpu") == 0
    outs = []
    for one in texts[1:]:
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
            patch.setattr(sys, "stdin", io.StringIO("QUARTZ\n"))
            assert cli.main(one[:-1] + ["cpu"]) == 0
        outs.append(out.getvalue().strip())
    code, out, err = process.finish()
    assert code == 0, err
    assert all(text and text in out for text in outs), f"{outs}\n{out}"
    files = (np.load(tmp_path / name / "adapter.npz") for name in ("cpu", "metal"))
    with next(files) as cpu, next(files) as metal:
        for name in cpu:
            if cpu[name].dtype == np.float32:
                np.testing.assert_allclose(metal[name], cpu[name], rtol=2e-3, atol=2e-4)


BASE = ["train", "--adapters", "runs/base"]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["generate", "runs/other", "--adapters", "runs/mine"], "other weights. Give the base that it was trained"),
        (["generate", "runs/wide", "--adapters", "runs/mine"], "expected the architecture.*Give the base that"),
        (["generate", "runs/base", "--adapters", "nowhere"], "nowhere: no such adapter; `lm train --adapters`"),
        (["generate", "runs/base", "--adapters", "runs/other"], "adapter.npz: no such adapter"),
        (["generate", "runs/base", "--adapters", "damaged"], "damaged: expected a file that adapters.save wrote"),
        (["generate", "runs/base", "--adapters", "ranks"], "expected the architecture.*with .32, 3"),
        (["train", "--rank", "4"], "--rank is of adapters; give their base by --adapters"),
        ([*BASE, "--resume", "runs/mine"], "--resume: adapters start anew"),
        ([*BASE, "--kv-heads", "1"], "--kv-heads: --adapters has the sizes of its base; leave it out"),
        ([*BASE, "--context", "64"], "--context 64: runs/base sees 32 at once; leave it out, or give less"),
        ([*BASE, "--data", "nowhere.txt"], "nowhere.txt: no such file"),
        (["train", "--adapters", "nowhere"], "nowhere: no such base for --adapters; give the folder of a run"),
        (["train", "--adapters", "runs"], "holds no .safetensors"),
    ],
)  # fmt: skip
def test_mistakes(arguments, words, place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    wide = place / "runs" / "wide"
    if not wide.exists():
        untrained(wide, ModelConfig(width=64, layers=2, heads=2, kv_heads=1, hidden=32))
    with np.load(place / "runs" / "mine" / "adapter.npz") as file:
        arrays = dict(file)
    arrays["0/a"] = arrays["0/a"][:, :3]
    with open("ranks", "wb") as changed:
        np.savez(changed, **arrays)
    content = (place / "runs" / "mine" / "adapter.npz").read_bytes()
    Path("damaged").write_bytes(content[: len(content) // 2])
    assert lm(*arguments) == 2
    said = capsys.readouterr().err
    assert re.search(words, said) and said.startswith("lm: ") and len(said.splitlines()) == 1
