"""docs/write-a-metal-op.md: every command in it, executed from top to bottom in a copy of the checkout."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "write-a-metal-op.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n?It prints:\n\n```text\n(.*?)^```\n)?", re.M | re.S)


def test_every_command(shell: Callable[..., str]) -> None:
    blocks = BLOCK.findall(GUIDE.read_text())
    commands = [(script, prints) for language, script, prints in blocks if language == "bash"]
    assert len(commands) >= 5
    for script, prints in commands:
        output = shell(script)
        for line in prints.splitlines():
            assert line in output, f"{script}\nprinted\n{output}"


def test_the_sweeps_take_the_guides_op(shell: Callable[..., str]) -> None:
    """After the guide: bad arguments, and every shader on the device, without a line in their tables."""
    tests = "tests/test_arguments.py tests/metal_kernels/on_device/test_every_launch.py"
    output = shell(
        f".venv/bin/python -m pytest -p no:cacheprovider {tests} -k 'scale_shift or every_shader' -rA"
    )
    assert "test_options_of_another_kind[scale_shift]" in output and "test_every_launch" in output


def test_every_command_is_seen() -> None:
    # Another language tag, or an indented block, would not be executed.
    text = GUIDE.read_text()
    fences = re.findall(r"^ *```(\w*)$", text, re.M)
    assert set(fences) <= {"bash", "text", ""}, fences
