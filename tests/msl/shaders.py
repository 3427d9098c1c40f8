"""Shared by the shader tests: compile a source, run its kernels on arrays, compare with float64 oracles."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import numpy as np
import pytest

from metal_ops.metal import CompileError, Options, compile_object, link
from metal_ops.metal.launch import Library
from tests.processes import VALIDATION

HEADER = "#include <metal_stdlib>\nusing namespace metal;\n"
_folder = tempfile.TemporaryDirectory(prefix="msl-tests-")


@functools.cache
def library(source: str, checked: bool = VALIDATION, header: str = HEADER, **options) -> Library:
    """`source` compiled and loaded. The checked kernels are made only where a test, or everybody, asks for them."""
    options = Options(validation=checked, **options)
    data, _ = compile_object("test.metal", options, header + source)
    with tempfile.NamedTemporaryFile(dir=_folder.name, suffix=".metallib", delete=False) as file:
        file.write(link([data]))
    return Library(file.name, checked)


def by_lanes_and_by_fibers(source: str) -> tuple[Library, Library]:
    """The same kernels, twice."""
    by_lanes = library(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METAL_OPS_FIBERS", "1")
        by_fibers = library(source + "// by fibers\n")
    return by_lanes, by_fibers


def messages(source: str, header: str = HEADER, **options) -> str:
    """The compiler's messages about a wrong source; '' if it accepts it. The header's lines are not
    counted."""
    try:
        compile_object(
            "test.metal", Options(validation=False, **options), header + "#line 1\n" + source
        )
    except CompileError as error:
        return str(error)
    return ""


def path(name: str) -> Path:
    """A path for a file of a test."""
    return Path(_folder.name) / name


def to_bfloat(x: np.ndarray) -> np.ndarray:
    """float32 -> the upper 16 bits, rounded to nearest even; as uint16."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat(x: np.ndarray) -> np.ndarray:
    """uint16 bits of bfloats -> float32."""
    return (x.astype(np.uint32) << 16).view(np.float32)
