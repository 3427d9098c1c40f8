"""These tests are for an environment with PyTorch: `make test-torch`. Elsewhere there are none."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

RECORD = Path(__file__).parent / "declarations.txt"

collect_ignore_glob = ["test_*"] if importlib.util.find_spec("torch") is None else []


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="record the ops' declarations anew")


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.getoption("--record"):
        from metal_ops.torch import _declared

        RECORD.write_text(_declared.library().metal_ops_torch_declarations().decode())
