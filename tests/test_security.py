"""SECURITY.md against the code: readers of data run none, and the names on the page are there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.reference import public

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "SECURITY.md").read_text()
SOURCES = sorted((ROOT / "python" / "metal_ops").rglob("*.py"))
pytestmark = pytest.mark.house

# Modules and functions that run what they read.
RUNS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "torch"}
CALLS = {"eval", "exec", "compile", "torch.load", "torch.jit.load", "torch.hub.load"}


def unsafe(text: str) -> Iterator[str]:
    """Imports and calls that make a program of data."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            yield from (name for name in names if name.split(".")[0] in RUNS)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in CALLS:
                yield name
            if name in ("np.load", "numpy.load", "np.lib.format.read_array"):
                if "allow_pickle=False" not in ast.unparse(node):
                    yield name
            if "trust_remote_code=True" in ast.unparse(node) or "safe_mode=False" in ast.unparse(
                node
            ):
                yield name


def test_readers_run_nothing_that_they_read():
    assert len(SOURCES) > 150
    found = {(path.name, name) for path in SOURCES for name in unsafe(path.read_text())}
    # The ops in PyTorch import it, and load no file with it.
    of_torch = {path.name for path in SOURCES if path.parent.name == "torch"}
    assert found == {(name, "torch") for name in of_torch if (name, "torch") in found}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from torch import load",
        "torch.load(path)",
        "x = np.load(path)",
        "x = np.load(path, allow_pickle=True)",
        "eval(text)",
        "keras.models.load_model(path, safe_mode=False)",
    ],
)
def test_control_a_reader_that_would_is_seen(text: str):
    assert [*unsafe(text)]
    assert not [*unsafe("x = np.load(path, allow_pickle=False)\ny = re.compile(text)")]


def test_the_page_names_what_there_is():
    listed = public.read(public.FILE.read_text())
    variables = set(public.VARIABLE.findall(PAGE))
    assert variables and variables <= set(listed[public.ENVIRONMENT])
    for path in re.findall(r"\]\((?!http)([^)#]+)\)|`(tests/[\w/.]+)`", PAGE):
        assert (ROOT / "".join(path)).exists(), path


@pytest.mark.parametrize(
    "words, path, code",
    [
        ("at most 2^27 pixels", "programs/reading.py", "MOST_PIXELS = 1 << 27"),
        ("JSON files of at most 32 MiB", "programs/reading.py", "MOST_JSON = 32 << 20"),
        ("PNG, JPEG, WebP, BMP or TIFF", "programs/reading.py", '"PNG", "JPEG", "WEBP", "BMP", "TIFF"'),
        ("(`pytorch_model.bin`) are refused", "lm/weights.py", '"pytorch_model*.bin": _CONVERTED'),
        ("`load(verify=True)`, the default", "package/loader.py", "verify: bool = True"),
        ("Inline\n  assembly is refused", "metal/rules.py", "inline assembly is not supported"),
    ],
)  # fmt: skip
def test_figures_are_the_code_s(words: str, path: str, code: str):
    assert words in PAGE and code in (ROOT / "python/metal_ops" / path).read_text()
