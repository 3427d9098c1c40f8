"""The habits of wording that `make lint` counts, and the hook that checks a commit's subject."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.processes import ROOT
from tools import words

pytestmark = pytest.mark.house


@pytest.mark.parametrize(
    "suffix, text, counted",
    [
        (".py", '"""What a call takes."""\n', 1),
        (".py", "x = 1  # Of an empty batch there is none.\n", 1),
        (".py", 'raise ValueError("nobody answers")\n', 1),
        (".py", "What = Of = nobody = 1\n", 0),
        (".cc", "// Whoever waits has not\n// the lock.\nint nobody;\n", 2),
        (".metal", "/* One thread\n   a row. */\n", 1),
        (".h", "// One thread per row; it has not begun yet.\n", 0),
        (".mk", "# Once a graph, and what else is asked for.\nwhat = Of\n", 2),
        (".md", "## What it costs\n\nA list of what is there.\n\n```python\n# What\n```\n", 1),
        (".md", "What is a barrier? The caller needs not wait.\n", 1),
    ],
)
def test_habits(suffix: str, text: str, counted: int):
    assert len(list(words.habits(suffix, text))) == counted, list(words.habits(suffix, text))


def test_a_room_over_its_ceiling_is_named(monkeypatch: pytest.MonkeyPatch, capsys):
    """The ceilings hold; without them each room that has habits is named with their number."""
    if not (ROOT / ".git").exists():
        pytest.skip("git lists the files, and a copy of the checkout is none of its trees")
    assert words.main([]) == 0, capsys.readouterr().out
    ceilings = words.CEILINGS
    monkeypatch.setattr(words, "CEILINGS", {})
    assert words.main([]) == 1
    said = capsys.readouterr().out
    found = dict(re.findall(r"^(\S+): (\d+) habits of wording, at most 0: ", said, re.M))
    assert found and all(int(count) <= ceilings[room] for room, count in found.items())


@pytest.mark.parametrize(
    "message, error",
    [
        ("lm: a missing file is told\n\nBecause.\n", ""),
        ("# a comment of git's\n\ntools, tests: " + "x" * 58 + "\n", ""),
        ("Merge branch 'words'\n", ""),
        ('Revert "lm: a missing file"\n', ""),
        ("tools, tests: " + "x" * 59 + "\n", "at most 72 characters, got 73"),
        ("A missing file is told\n", "expected a subject 'area: what it does', got 'A missing"),
        ("lm:a missing file is told\n", "expected a subject 'area: what it does'"),
        ("", "expected a subject 'area: what it does', got ''"),
    ],
)
def test_the_hook_of_commits(message: str, error: str, tmp_path: Path):
    (tmp_path / "message").write_text(message)
    command = [ROOT / "tools/hooks/commit-msg", tmp_path / "message"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, error in done.stderr) == (int(bool(error)), True), done.stderr
    assert bool(done.stderr) == bool(error)
