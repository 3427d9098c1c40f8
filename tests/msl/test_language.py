"""Every feature of the language that language.py lists: those that are there compute its results, the others get one
sentence."""

from __future__ import annotations

import re

import numpy as np
import pytest

from metal_ops.metal.launch import Kernel, Sampler, Texture

from .language import SECTIONS, Feature
from .shaders import library, messages

ROWS = {
    f"{section.split()[0].rstrip(',')}-{number}": row
    for section, rows in SECTIONS.items()
    for number, row in enumerate(rows)
}
THERE = [name for name, row in ROWS.items() if not row.says]
# Rows that belong to a whole file: kernels by name, function constants by index, includes.
ALONE = [n for n in THERE if re.search(r"function_constant|kernel|#include", ROWS[n].before)]
STD = (3, 2)
STD_4 = (4, 0)
WITH_TENSORS = "// dextents: with the tensors' part of the library, which is of a later C++\n"


def _kernel(name: str, row: Feature) -> str:
    return f"kernel void {name}(device float* out [[buffer(0)]], uint i [[thread_position_in_grid]]{row.args}) {{\n{row.code}\n}}\n"


def _source(name: str) -> str:
    """A row as a whole file."""
    return f"{ROWS[name].before}\n{_kernel('k', ROWS[name])}"


def _namespace(name: str) -> str:
    """A row among others; messages call it by its name."""
    place = "row_" + re.sub(r"\W", "_", name)
    inside = f"{ROWS[name].before}\n{_kernel('k_' + place, ROWS[name])}"
    return f'#line 1 "{name}"\nnamespace {place} {{\n{inside}}}\n'


@pytest.fixture(scope="module")
def together():
    names = [n for n in THERE if n not in ALONE and ROWS[n].since <= STD]
    return library("".join(map(_namespace, names)), std=STD)


@pytest.fixture(scope="module")
def together_4():
    return library("".join(_namespace(n) for n in THERE if ROWS[n].since == STD_4), std=STD_4)


def _pixels(dtype: type, *shape: int) -> np.ndarray:
    """[slices, height, width, 4]: every component is 100 * slice + 10 * y + x."""
    slices, height, width = np.indices(shape)
    pixels = 100 * slices + 10 * height + width
    return np.repeat(pixels[..., None], 4, axis=3).astype(dtype)


def _textures() -> dict[int, Texture]:
    line = _pixels(np.float32, 1, 1, 4)
    lines = np.concatenate([line, line + 10])
    return {
        0: Texture(line),
        1: Texture(lines, is_array=True),
        2: Texture(_pixels(np.float32, 1, 2, 4)),
        3: Texture(_pixels(np.float32, 2, 2, 4), is_array=True),
        4: Texture(_pixels(np.float32, 2, 2, 4)),
        5: Texture(_pixels(np.float32, 6, 4, 4), is_array=True),
        6: Texture(_pixels(np.float32, 12, 4, 4), is_array=True),
        7: Texture(_pixels(np.int16, 1, 2, 4)),
        8: Texture(_pixels(np.uint32, 1, 2, 4)),
        9: Texture(_pixels(np.float32, 1, 2, 4)),
        10: Texture(np.zeros((1, 2, 4, 4), np.float32)),
        11: Texture(_pixels(np.float32, 1, 2, 4) + 5),
        12: Texture(_pixels(np.float32, 1, 2, 4)),
        13: Texture(_pixels(np.uint32, 1, 2, 4)[..., :1].copy()),
        14: Texture(_pixels(np.int32, 1, 1, 4)[..., :1].copy()),
        15: Texture(_pixels(np.uint32, 2, 2, 4)[..., :1].copy(), is_array=True),
    }


def _run(kernel: Kernel, row: Feature) -> None:
    out = np.zeros(32, np.float32)
    scratch = {index: np.zeros(64, np.float32) for index in range(1, 6)}
    kernel.run(
        row.threads,
        row.threads,
        {0: out, **scratch},
        threadgroup_memory={0: 64},
        textures=_textures(),
        samplers={0: Sampler(lod_max=16)},
    )
    assert row.gives and any(row.gives), "the row says nothing that zeros would not"
    np.testing.assert_allclose(
        out[: len(row.gives)], np.float32(row.gives), rtol=1e-6, err_msg=row.name
    )


@pytest.mark.parametrize("name", [n for n in THERE if ROWS[n].since <= STD])
def test_there(name: str, request):
    if name in ALONE:
        kernel = library(_source(name), std=STD)["k"]
    else:
        kernel = request.getfixturevalue("together")["k_row_" + re.sub(r"\W", "_", name)]
    _run(kernel, ROWS[name])


@pytest.mark.parametrize("name", [n for n in THERE if ROWS[n].since == STD_4])
def test_there_in_metal_4(name: str, together_4):
    _run(together_4["k_row_" + re.sub(r"\W", "_", name)], ROWS[name])


@pytest.mark.slow("compiles all rows once more")
def test_all_in_metal_4():
    names = [n for n in THERE if n not in ALONE]
    together = library(WITH_TENSORS + "".join(map(_namespace, names)), std=STD_4)
    for name in names:
        _run(together["k_row_" + re.sub(r"\W", "_", name)], ROWS[name])


@pytest.mark.parametrize("name", [n for n in ROWS if n not in THERE])
def test_refused(name: str):
    row = ROWS[name]
    said = messages(_source(name), std=max(STD, row.since))
    assert row.says in said, f"{row.name}\n{said or 'accepted'}"
    if not row.plan or "this compute compiler" in row.says:
        assert len(re.findall(r"^\S+: (?:fatal )?error: ", said, re.M)) == 1, said
    assert not re.search(r"__global|__local\b|_Float16|_msl_|_MSL_", said), said
