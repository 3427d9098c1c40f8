"""The programs of docs/torch.md run, and print what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/torch.md"
BLOCK = re.compile(r"^```python\n(.*?)^```$\n\nIt prints:\n\n```text\n(.*?)^```$", re.M | re.S)


def test_programs() -> None:
    text = PAGE.read_text()
    found = BLOCK.findall(text)
    assert len(found) == text.count("```python") == 2
    names: dict[str, object] = {}
    for code, prints in found:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, str(PAGE), "exec"), names)  # noqa: S102
        assert printed.getvalue() == prints
