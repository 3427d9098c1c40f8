"""A short run of every fuzzer, and controls that each would see a failure. `make fuzz` is a long one."""

from __future__ import annotations

import functools
import inspect
import random
import sys

import pytest

import metal_ops
from metal_ops import raw_ops
from metal_ops.nerf.scenes import common
from metal_ops.programs import reading
from tests.suites import at_depth

from . import calls, engine, metallibs, readers

# Seconds of processor time together, where every case is asked for: about 20.
INPUTS = {
    "scene": 1500,
    "checkpoint": 500,
    "model-gguf": 300,
    "model-folder": 300,
    "package": 300,
    "mesh": 500,
    "metallib": 20_000,
    "cache": 2000,
    "arguments": 400,
    "arguments-device": 200,
}
INPUTS = {name: count // at_depth(3, 1) for name, count in INPUTS.items()}
LINUX_ONLY = ("metallib", "cache", "arguments-device")


@pytest.mark.parametrize("name", readers.NAMES)
def test_a_short_run(name, tmp_path):
    if name in LINUX_ONLY and sys.platform == "darwin":
        pytest.skip("of the Metal runtime on Linux")
    if name == "metallib" and not metallibs.PROGRAM.exists():
        pytest.skip("`make fuzz` builds its program")
    reader = readers.make(name)
    try:
        if name == "metallib":
            report = reader.run(7, INPUTS[name], tmp_path)
        else:
            report = engine.run(reader, 7, 0, INPUTS[name], tmp_path)
    finally:
        reader.close()
    assert not report.failures, report.failures[0][1]
    assert report.inputs >= INPUTS[name]
    if name == "metallib":
        return
    # Neither all right nor all wrong: both sides of every reader are seen.
    assert report.outcomes["accepted"] > 0.02 * report.inputs
    assert report.outcomes["refused"] > 0.2 * report.inputs


@pytest.mark.parametrize("name", ["scene", "arguments"])
def test_an_input_follows_from_its_number(name):
    reader = readers.make(name)
    try:
        one, again, other = (repr(reader.make(engine.rng_of(3, name, n))) for n in (99, 99, 98))
    finally:
        reader.close()
    assert one == again != other


CONTROLS = {
    # Mistakes planted in the readers, and the error that the fuzzer then sees.
    "a check of the frames": (common, "frames_of", lambda content, *_: content["frames"], "Error"),
    "a limit of numbers": (reading, "is_number", lambda _: True, "Error"),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_control_a_reader_without_a_check_fails(name, tmp_path, monkeypatch):
    module, function, replacement, expected = CONTROLS[name]
    reader = readers.make("scene")
    for user in ("blender", "instant_ngp", "common"):
        place = sys.modules[f"metal_ops.nerf.scenes.{user}"]
        if hasattr(place, function):
            monkeypatch.setattr(place, function, replacement)
    monkeypatch.setattr(module, function, replacement)
    try:
        report = engine.run(reader, 7, 0, 600, tmp_path)
    finally:
        reader.close()
    assert report.failures and expected in report.failures[0][1]
    number = report.failures[0][0]
    kept = tmp_path / f"scene-7-{number}"  # which can be fed again by its number
    assert (kept / "traceback.txt").exists() and len(list(kept.iterdir())) == 2


@functools.cache
def called():
    return calls.tables()


def test_every_function_and_op_is_called():
    """A function or op without a call of its own in ops/ has one that is derived from its signature
    or declaration."""
    public, raw = called()
    functions = {
        name for name in metal_ops.ops.__all__ if inspect.isfunction(getattr(metal_ops, name))
    }
    # These two make functions, whose refusals are tested.
    assert set(public) == functions - {"metal_kernel", "metal_library"}
    assert set(raw) == set(dir(raw_ops)) - {"metal_kernel", "metal_kernel_by_handle"}
    stated_public, stated_raw = calls.stated()
    assert set(stated_public) < set(public) and set(stated_raw) < set(
        raw
    )  # none of an op that is gone


@pytest.mark.parametrize("where", ["public", "raw"])
def test_calls_are_right(where):
    """A fuzzer whose calls are all refused at once would find nothing behind the first check."""
    table = dict(zip(("public", "raw"), called(), strict=True))[where]
    reader = readers.make("arguments")
    try:
        said = {
            name: reader.feed((where, name, given, False, False)) for name, given in table.items()
        }
    finally:
        reader.close()
    assert said == dict.fromkeys(table, "accepted")


def test_control_a_crash_is_one_inputs(tmp_path, monkeypatch):
    """Address 0 in the other process: the input is named, and the next one is answered."""
    crash = ("public", "zero_out", {"x": calls.Special("crash")}, False, False)
    right = ("public", "zero_out", {"x": calls.POINTS}, False, False)
    reader = readers.make("arguments")
    monkeypatch.setattr(reader, "make", lambda rng: crash if rng.seed_number == 1 else right)

    class Numbered(random.Random):
        seed_number = 0

    def numbered(seed: int, name: str, number: int) -> Numbered:
        rng = Numbered(0)
        rng.seed_number = number
        return rng

    monkeypatch.setattr(engine, "rng_of", numbered)
    try:
        report = engine.run(reader, 0, 0, 3, tmp_path)
    finally:
        reader.close()
    assert [number for number, _ in report.failures] == [1]
    assert "the process ended with -11" in report.failures[0][1]
    assert report.outcomes == {"accepted": 2, "failed": 1}
