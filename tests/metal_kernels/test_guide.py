"""docs/write-a-metal-op.md: every command in it, executed from top to bottom in a copy of the checkout."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "write-a-metal-op.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n?It prints:\n\n```text\n(.*?)^```\n)?", re.M | re.S)


@pytest.mark.full("builds the library with an op more, device and all")
def test_every_command(shell: Callable[..., str], checkout: Path, tmp_path: Path) -> None:
    """As if pasted into one shell: a block begins in the folder where the last one has ended."""
    blocks = BLOCK.findall(GUIDE.read_text())
    commands = [(script, prints) for language, script, prints in blocks if language == "bash"]
    assert len(commands) >= 5
    here, note = str(checkout), tmp_path / "where"
    for script, prints in commands:
        output = shell(f"cd {shlex.quote(here)}\n{script}\npwd > {shlex.quote(str(note))}")
        here = note.read_text().strip()
        for line in prints.splitlines():
            assert line in output, f"{script}\nprinted\n{output}"


def test_every_command_is_seen() -> None:
    # Another language tag, or an indented block, would not be executed.
    text = GUIDE.read_text()
    fences = re.findall(r"^ *```(\w*)$", text, re.M)
    assert set(fences) <= {"bash", "text", ""}, fences
