"""CHANGELOG.md: its form, its length, the version that it begins with, and a test for each defect of a release."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "CHANGELOG.md").read_text()
PRODUCTS = ("hostmetal", "ops", "device", "programs")
KINDS = ("Added", "Changed", "Faster", "Fixed")
MOST_LINES = 150
pytestmark = pytest.mark.docs


def mistakes(text: str, version: str) -> list[str]:
    """The places where a changelog has another form than CONTRIBUTING.md says."""
    found = []
    if (lines := len(text.splitlines())) > MOST_LINES:
        found.append(f"{lines} lines, at most {MOST_LINES}: git has the old ones")
    unreleased, *released = re.split(r"^## ", text, flags=re.M)[1:]
    if not unreleased.startswith("[Unreleased]\n"):
        found.append("the first heading is not [Unreleased]")
    kinds = re.findall(r"^### (.*)$", unreleased, re.M)
    found += [f"[Unreleased] has {kind}" for kind in kinds if kind not in KINDS]
    if not any(part.startswith(f"[{version}]") for part in released):
        found.append(f"no heading [{version}]")
    for part in released:
        name = part.split("\n")[0]
        products = re.split(r"^### ", part, flags=re.M)[1:]
        found += in_order(name, [each.split("\n")[0] for each in products], PRODUCTS)
        for product in products:
            sections = re.split(r"^#### ", product, flags=re.M)[1:]
            found += in_order(name, [each.split("\n")[0] for each in sections], KINDS)
            for section in sections:
                entries = re.findall(r"^- .*(?:\n  .*)*", section, re.M)
                found += [f"{name}: empty {section[:20]!r}"] * (not entries)
                if section.startswith("Fixed"):
                    found += [each for each in entries if not has_test(each)]
    return found


def in_order(name: str, headings: list[str], expected: tuple[str, ...]) -> list[str]:
    right = [each for each in expected if each in headings]
    return [] if headings == right and headings else [f"{name}: {headings}, expected {expected}"]


def has_test(entry: str) -> bool:
    paths = re.findall(r"\((tests/[\w/]+\.(?:py|mm))\)", entry)
    return bool(paths) and all((ROOT / path).exists() for path in paths)


def test_form():
    from metal_ops import _version

    assert mistakes(TEXT, _version.__version__) == []
    assert "Unreleased" in (ROOT / "CONTRIBUTING.md").read_text()


@pytest.mark.parametrize(
    "before, after, what",
    [
        ("## [Unreleased]\n", "## [New]\n", "first heading"),
        ("### device\n", "### gadget\n", "gadget"),
        ("#### Fixed\n- ", "#### Mended\n- ", "Mended"),
        (" (tests/msl/test_lanes.py)", "", "short rows"),
        ("tests/msl/test_lanes.py", "tests/msl/test_none.py", "short rows"),
        ("## [0.9.0]", "## [0.8.0]", "no heading"),
        ("# Changelog\n", "# Changelog\n" + "\n" * MOST_LINES, "lines, at most"),
    ],
)
def test_control_other_forms_are_seen(before: str, after: str, what: str):
    assert before in TEXT
    found = mistakes(TEXT.replace(before, after, 1), "0.9.0")
    assert len(found) == 1 and what in found[0]
