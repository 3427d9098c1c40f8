"""The mutation check itself: its mutants, that it mends, and that it tells found from survived."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import mutate
from tools.mutation import places, report, rooms

pytestmark = pytest.mark.house

ROOT = Path(__file__).resolve().parents[1]

# source line, operator, the line broken
CPP = [
    ("if (a < b) f();", "relational", "if (a <= b) f();"),
    ("std::vector<int> a(n + 1);", "arithmetic", "std::vector<int> a(n - 1);"),
    ("float* x = y;  // a * b", "", ""),
    ('Log("a && b", x && y);', "logical", 'Log("a && b", x || y);'),
    ('stream << "a";', "", ""),
    ("const float scale = 0.5f;", "constant", "const float scale = 1.5f;"),
    ("if (f(a, b)) return;", "condition", "if (!(f(a, b))) return;"),
    ("if (f(a, b)) return;", "arguments", "if (f(b, a)) return;"),
    ("v = hn::Add(df, a, b);", "word", "v = hn::Sub(df, a, b);"),
    ("*out = a;", "statement", ";"),
    ("[encoder endEncoding];", "statement", ";"),
    ("#if A < 3", "", ""),
    ('#include "a-1.h"', "", ""),
    ("#define LIMIT 4", "constant", "#define LIMIT 5"),
]
PYTHON = [
    ("x = a if n < 3 else b", "relational", "x = a if n <= 3 else b"),
    ("x = a if n < 3 else b", "condition", "x = a if (not (n < 3)) else b"),
    (
        "def f(x: int | None = None, n: int = 4): ...",
        "constant",
        "def f(x: int | None = None, n: int = 5): ...",
    ),
    ("'''a + 1'''", "", ""),
    ("raise ValueError('a or b')", "statement", "pass"),
    ("self.x = 'é' and y", "logical", "self.x = 'é' or y"),
]


@pytest.mark.parametrize(
    ("line", "operator", "broken", "suffix"),
    [(*row, ".cc") for row in CPP] + [(*row, ".py") for row in PYTHON],
)
def test_lines_are_broken(
    tmp_path: Path, line: str, operator: str, broken: str, suffix: str
) -> None:
    before, after = (
        ("void f() {\n  ", "\n}\n") if suffix == ".cc" and line[0] != "#" else ("", "\n")
    )
    source = tmp_path / f"source{suffix}"
    source.write_text(before + line + after)
    text, changes = places.changes(source)
    lines = [(name, text[:start] + other + text[end:]) for name, start, end, other in changes]
    if operator:
        assert (operator, before + broken + after) in lines
    else:
        assert lines == []


def test_the_same_places_for_the_same_seed() -> None:
    patterns = {"graph": rooms.ROOMS["graph pass"][0]}
    first, second, other = (places.draw(ROOT, patterns, seed)["graph"] for seed in (1, 1, 2))
    assert first == second != other
    assert len({(m.path, m.line) for m in first}) == len(first) > 300
    for mutant in first[:50]:
        text = (ROOT / mutant.path).read_text()
        broken = mutant.apply(text)
        changed = [
            i
            for i, (a, b) in enumerate(zip(text.split("\n"), broken.split("\n"), strict=False))
            if a != b
        ]
        assert changed[:1] == [mutant.line - 1]


LINES = ["int a = 1;", "int b = 1;", "int c = 1;", "int d = 1;", "int e = 1;", "int f = 1;"]


def _draw(root: Path, files: dict[str, list[str]], results: Any = None) -> list[places.Mutant]:
    for old in root.glob("*.cc"):
        old.unlink()
    for name, lines in files.items():
        (root / name).write_text("\n".join(lines) + "\n")
    return places.draw(root, {"room": ["*.cc"]}, 1, results)["room"]


def test_a_place_is_known_by_its_text(tmp_path: Path) -> None:
    """It keeps its id and its number where it moves, and loses them where it or a neighbour changes."""
    first = _draw(tmp_path, {"a.cc": LINES})
    moved = _draw(tmp_path, {"b.cc": ["#include <x>", "", "void f();", "", *LINES, "int g = 1;"]})
    now = {m.id: m for m in moved}
    for mutant in first:
        inner = 1 < mutant.line < len(LINES)
        assert (mutant.id in now) is inner
        if inner:
            there = now[mutant.id]
            assert (there.path, there.line, there.rank) == ("b.cc", mutant.line + 4, mutant.rank)
            assert there.apply((tmp_path / "b.cc").read_text()).split("\n")[there.line - 1]
    twice = _draw(tmp_path, {"a.cc": LINES, "b.cc": LINES})
    assert len({m.id for m in twice}) == len({m.rank for m in twice}) == 2 * len(LINES)


def test_results_of_places_that_still_stand_are_kept(tmp_path: Path) -> None:
    first = _draw(tmp_path, {"a.cc": LINES})
    other = [m for m in places.draw(tmp_path, {"room": ["*.cc"]}, 7)["room"]]
    results = {
        m.id: {"id": m.id, "rank": 0.0, "status": "found", "path": "a.cc"} for m in other[:4]
    }
    by_line = {m.line: m.id for m in other[:4]}
    drawn = _draw(tmp_path, {"b.cc": [*LINES[:4], "int x = 1;", "", *LINES[4:]]}, results)
    kept = mutate.still_there(results, {"room": drawn})
    assert set(kept) == {id for line, id in by_line.items() if line not in (4, 5)}
    assert {result["path"] for result in kept.values()} == {"b.cc"}
    assert {m.id for m in drawn[: len(kept)]} == set(
        kept
    )  # with the numbers that they were drawn with
    assert len(first) == len(other)


def test_every_test_that_is_named_exists() -> None:
    named = [test for tests in rooms.FAMILIES.values() for test in tests]
    rules = [*rooms.BY_PATH, *rooms.AROUND]
    named += [*rooms.SWEEPS, *(test for _, tests in rules for test in tests)]
    assert [test for test in sorted(set(named)) if not (ROOT / test).exists()] == []


def test_every_source_has_a_place() -> None:
    """`make test-near` runs nothing for a file without one. Texts and pictures of docs/ are the pages' own."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [path for path in listed.stdout.splitlines() if (ROOT / path).is_file()]
    assert len(paths) > 1000 and [path for path in paths if not rooms.place(path)] == []
    assert rooms.place("kernels/softshrink/softshrink.metal") == "kernels/softshrink"
    assert rooms.place("elsewhere/new.cc") is None, "the control"


@pytest.mark.parametrize(
    "path, tests",
    [
        (
            "kernels/softshrink/softshrink.metal",
            {rooms.OWN.format("softshrink"), *rooms.SWEEPS[2:]},
        ),
        ("tests/test_softshrink.py", {"tests/test_softshrink.py"}),
        ("tests/oracles/march.py", {"tests/test_ray_march.py"}),
        ("docs/index.md", {"tests/test_docs.py"}),
        ("python/metal_ops/sdf/mesh.py", {"tests/sdf/test_mesh.py"}),
    ],
)
def test_near(path: str, tests: set[str]) -> None:
    found = rooms.near(path, set())
    assert tests <= {*found} and len(found) < 15


@pytest.mark.parametrize(
    ("test", "status", "by"),
    [
        ("import toy\n\ndef test_it():\n    assert toy.double(3) == 6\n", "found", "test_it"),
        ("import toy\n\ndef test_it():\n    assert toy.double(1) >= 0\n", "survived", ""),
        ("def test_it():\n    assert False\n", "survived", ""),  # it fails without the mutant too
        (
            "import os, toy\n\nif toy.double(3) != 6:\n    os.abort()\n\ndef test_it(): ...\n",
            "found",
            "signal 6",
        ),
        (  # the line of a test that ends the process is not ended
            "import os, toy\n\ndef test_it():\n    if toy.double(3) != 6:\n        os.abort()\n",
            "found",
            "test_it: ended by signal 6",
        ),
    ],
)
def test_verdict(tmp_path: Path, test: str, status: str, by: str) -> None:
    """On a checkout of one file, of which the mutant turns `2 * x` into `2 / x`."""
    root = tmp_path / "root"
    package = root / "python" / "metal_ops"
    package.mkdir(parents=True)
    (root / "tests").mkdir()
    (package.parent / "toy.py").write_text("from metal_ops.of_toy import double\n")
    (package / "__init__.py").write_text("")
    (package / "of_toy.py").write_text("def double(x):\n    return 2 * x\n")
    (root / "tests" / "test_import.py").write_text(test)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    script = (
        "import json, sys; from pathlib import Path; from tools.mutation import places, runner\n"
        "root, work = map(Path, sys.argv[1:])\n"
        "(mutant,) = [m for m in places.draw(root, {'Python': ['python/metal_ops/of_toy.py']}, 1)['Python']]\n"
        "text, changes = places.changes(root / mutant.path)\n"
        "(start,) = [c[1] for c in changes if c[0] == 'arithmetic']\n"
        "mutant = places.Mutant('Python', mutant.path, 2, start, start + 1, '*', '/', 'arithmetic')\n"
        "copy = runner.Copy(root, work)\n"
        "result = runner.verdict(copy, mutant)\n"
        "assert (copy.tree / mutant.path).read_text() == (copy.whole / mutant.path).read_text() == text\n"
        "print(json.dumps(result))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, root, tmp_path / "work"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert f'"status": "{status}"' in done.stdout
    assert by in done.stdout


def test_the_page_is_up_to_date() -> None:
    results = list(mutate.read(mutate.RESULTS).values())
    page = report.page(results, mutate.shares(200))
    assert (ROOT / "docs" / "mutation.md").read_text() == page, "run `tools/mutate.py report`"
    assert [r["id"] for r in results if r["status"] == "survived" and not r.get("reason")] == []


def test_the_page_tells_found_from_missed() -> None:
    mutant = {"room": "device", "path": "a.mm", "line": 3, "before": "a", "after": "b"}
    mutant.update(rank=0.1, commit="1234567")
    survived = {**mutant, "status": "survived"}
    results = [
        *({**mutant, "status": status} for status in ["found"] * 3 + ["does not build"]),
        {**survived, "reason": "equivalent: speed alone."},
        {**survived, "reason": "No test has two threads here."},
        {**survived, "rank": 0.9, "room": "graph pass"},
        {**survived, "rank": 0.8, "room": "graph pass", "status": "found", "commit": "abcdefg"},
    ]
    page = report.page(results, {"device": 6, "graph pass": 1})
    assert "| device | 6 | 1 | 3 | 1 | 1 |" in page
    assert "| graph pass | 1 | 0 | 1 | 0 | 0 |" in page  # one result more than its share
    assert "80.0 % were noticed (4 of 5)" in page
    assert "Run on 1234567 (5), abcdefg (1)." in page
    same, missed = page.split("## No test can tell")[1].split("## Missed")
    assert "speed alone." in same and "No test has two threads here." in missed
