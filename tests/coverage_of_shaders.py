"""pytest --metal-coverage: the run with kernels that count what they execute, and llvm-cov's report behind it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.forked import ROOT

FOLDER = ROOT / "build/coverage"


def pytest_addoption(parser):
    parser.addoption(
        "--metal-coverage", action="store_true", help="coverage of the shaders that tests compile"
    )


def pytest_cmdline_main(config):
    """Another pytest does the work: counts are written when its processes end."""
    if not config.getoption("--metal-coverage"):
        return None
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    words = [word for word in config.invocation_params.args if word != "--metal-coverage"]
    environment = {**os.environ, "HOSTMETAL_COVERAGE": str(FOLDER)}
    code = subprocess.call([sys.executable, "-m", "pytest", *words], env=environment)
    report = [sys.executable, str(ROOT / "python/metal_ops/metal"), f"--coverage-report={FOLDER}"]
    return code or subprocess.call(report)
