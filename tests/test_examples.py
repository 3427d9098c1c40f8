"""Every example runs from its first line to its last, which checks its own result. Each in a process, two at a time."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from tests.processes import ROOT, Process

pytestmark = pytest.mark.docs

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SECONDS = 40  # on two cores of their own that two examples share; a busy machine may take four times as long
PLOTS = ("activity_recognition", "digits", "resnet50")
LONGER = {"resnet50": 60}  # a third of which TensorFlow traces 53 convolutions and their gradients


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, Process]]:
    yield (running := {})
    for process in running.values():
        process.stop()


def case(index: int) -> Any:
    """The longest of the examples are the whole suite's."""
    name = EXAMPLES[index].stem
    marks = [pytest.mark.full("trains for a minute on two cores")] if name in LONGER else []
    return pytest.param(index, id=name, marks=marks)


@pytest.mark.parametrize("index", [*map(case, range(len(EXAMPLES)))])
def test_example(index: int, runs: dict[str, Process]):
    for path in EXAMPLES[index : index + 2]:  # this one, and the next one beside it
        long = path.stem in LONGER and path != EXAMPLES[index]
        if path.name not in runs and not long:
            (ROOT / "runs" / f"{path.stem}.png").unlink(missing_ok=True)
            runs[path.name] = Process(str(path))
    code, out, err = runs[EXAMPLES[index].name].finish(
        timeout=4 * LONGER.get(EXAMPLES[index].stem, SECONDS)
    )
    assert code == 0, f"exit code {code}\n{out}\n{err}"
    assert "Traceback" not in err and len(out.splitlines()) >= 3, f"{out}\n{err}"
    if EXAMPLES[index].stem == "fit_an_image":
        with Image.open(ROOT / "runs" / "fit_an_image.png") as picture:
            assert picture.size == (4 * 256 + 3 * 4, 256)
    if EXAMPLES[index].stem in PLOTS:
        with Image.open(ROOT / "runs" / f"{EXAMPLES[index].stem}.png") as plot:
            assert min(plot.size) > 400 and len(plot.convert("L").getcolors()) > 50


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_reads_as_a_tutorial(path):
    """It says its purpose and how to run it, checks its result, and is in the list."""
    text = path.read_text()
    tree = ast.parse(text)
    assert f"examples/{path.name}" in (ast.get_docstring(tree) or "")
    assert isinstance(tree.body[-1], ast.Assert) or "np.testing.assert" in text
    assert f"]({path.name})" in (ROOT / "examples" / "README.md").read_text()
    assert max(map(len, text.splitlines())) <= 120
