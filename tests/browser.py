"""The browser of the tests that look at pages: where it cannot be had, these fail and all others are run."""

from __future__ import annotations

import collections
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import pytest

from tests.processes import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

UNTRIED = "could not be tried: "


def untried(reason: str) -> NoReturn:
    """Fails the test as one that could not be tried; `make test` lists the reasons at its end."""
    pytest.fail(UNTRIED + reason, pytrace=False)


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser, or a test that could not be tried."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        untried("playwright is missing, which `make test` installs from requirements-browser.txt")
    found = subprocess.run(
        ["tools/setup.sh", "--find-browser"], cwd=ROOT, capture_output=True, text=True
    )
    if found.returncode != 0:
        untried(found.stderr.strip().removeprefix("metal_ops: "))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found.stdout.strip(), args=["--no-sandbox"] * (os.getuid() == 0)
        )
        yield browser
        browser.close()


def pytest_terminal_summary(terminalreporter):
    """`make test` lists at its end the programs that this machine lacks for some tests; they have failed."""
    reports = terminalreporter.getreports("failed") + terminalreporter.getreports("error")
    texts = [str(report.longrepr) for report in reports]
    reasons = collections.Counter(t.removeprefix(UNTRIED) for t in texts if t.startswith(UNTRIED))
    if reasons:
        terminalreporter.section("could not be tried")
    for reason, count in reasons.items():
        terminalreporter.line(f"{count} not tried: {reason}")
