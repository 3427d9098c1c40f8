"""Results that a review should see, a line of JSON per row: errors, device_errors, numbers and dtypes in docs/.

`python -m tools.reference --measure` writes them, and tests compare them with new results. Needs nothing but Python.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[2] / "docs"
ERRORS = DOCS / "errors.jsonl"
DEVICE_ERRORS = DOCS / "device_errors.jsonl"
NUMBERS = DOCS / "numbers.jsonl"
DTYPES = DOCS / "dtypes.jsonl"
# How a row calls what it is of.
KEY = {ERRORS: "op", DEVICE_ERRORS: "op", NUMBERS: "function", DTYPES: "op"}
# For all four together: as many as a review can be asked to look at.
MOST_LINES = 1500


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The rows by their subjects, in their order.

    Raises:
      ValueError: A line is no row. The message names the file and the line.
    """
    rows: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            row = json.loads(line)
            rows[row.pop(KEY[path])] = row
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{path}:{number}: expected an object with {KEY[path]!r}, got {line[:80]!r} ({error!r})."
            ) from None
    return rows


def write(path: Path, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes rows, sorted but for those of functions, which are in the specification's order."""
    names = sorted(rows) if KEY[path] == "op" else rows
    lines = []
    for name in names:
        row = dict(json.loads(json.dumps(rows[name], sort_keys=True)))
        lines.append(json.dumps({KEY[path]: name, **row}) + "\n")
    path.write_text("".join(lines))
