"""hostmetal's own tests: Objective-C++ programs built by make, one case a process, one line per case."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build/tests/hostmetal/hostmetal_tests"
SOURCES = sorted(Path(__file__).parent.glob("*_test.mm"))
CASES = [
    name for source in SOURCES for name in re.findall(r"^TEST\((\w+)\)", source.read_text(), re.M)
]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hostmetal is built on Linux only")


@pytest.fixture(scope="session")
def program() -> Path:
    """The test program, built if a source is newer."""
    if os.environ.get("METAL_OPS_BUILT_BY") == "bazel":  # and put there: tools/bazel/run_pytest.sh
        return PROGRAM
    made = subprocess.run(
        ["make", str(PROGRAM.relative_to(ROOT))], cwd=ROOT, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return PROGRAM


def run(program: Path, *names: str, **environment: str) -> str:
    """Run cases in one process; their messages are the assertion's message. Returns the standard error."""
    done = subprocess.run(
        [program, *names],
        cwd=ROOT,
        env={**os.environ, "HOSTMETAL_FIXTURES": str(PROGRAM.parent), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr


@pytest.mark.parametrize("name", CASES)
def test_case(program: Path, name: str) -> None:
    run(program, name)


@pytest.mark.parametrize(
    "name", [name for name in CASES if name.startswith(("validation_", "function_tables_"))]
)
def test_validation(program: Path, name: str) -> None:
    run(program, name, METAL_DEVICE_WRAPPER_TYPE="1")


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("devices_")])
def test_two_devices(program: Path, name: str) -> None:
    run(program, name, HOSTMETAL_DEVICES="2")


@pytest.mark.parametrize("value", ["0", "65", "-1", "two"])
def test_no_number_of_devices(program: Path, value: str) -> None:
    with pytest.raises(AssertionError, match=f"HOSTMETAL_DEVICES is '{value}'; expected a number"):
        run(program, "library_lists_its_functions", HOSTMETAL_DEVICES=value)


@pytest.mark.parametrize("name", [name for name in CASES if "samples" in name])
def test_times_of_passes_alone(program: Path, name: str) -> None:
    run(program, name, HOSTMETAL_COUNTERS="stages")


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("timeout_")])
def test_timeout(program: Path, name: str) -> None:
    run(program, name, HOSTMETAL_TIMEOUT="0.5")


@pytest.mark.parametrize(
    "environment",
    [
        {"MTL_LOG_LEVEL": "MTLLogLevelFault"},
        {"MTL_LOG_LEVEL": "MTLLogLevelDebug"},
        {"MTL_LOG_LEVEL": "loud", "MTL_LOG_BUFFER_SIZE": "1000"},
    ],
)
def test_log_variables(program: Path, environment: dict[str, str]) -> None:
    run(program, "logs_without_a_state_follow_the_environment", **environment)


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1e7", "nan"])
def test_no_timeout(program: Path, value: str) -> None:
    with pytest.raises(AssertionError, match=f"HOSTMETAL_TIMEOUT is '{value}'; expected seconds"):
        run(program, "library_lists_its_functions", HOSTMETAL_TIMEOUT=value)


ALL_CHECKS = "race,init,barrier,bounds,alias"


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("check_")])
def test_checks(program: Path, name: str) -> None:
    run(program, name, HOSTMETAL_CHECK=ALL_CHECKS)


@pytest.mark.parametrize(
    "variable, value, says",
    [
        ("HOSTMETAL_CHECK", "race,speed", "'race,speed', in which 'speed' is no check; expected some of race, init"),
        ("HOSTMETAL_CHECK", "race,", "in which '' is no check"),
        ("HOSTMETAL_CHECK", "1", "in which '1' is no check"),
        ("HOSTMETAL_SCHEDULE", "random", "expected reverse, one-simdgroup, or random: with a number"),
        ("HOSTMETAL_SCHEDULE", "random:x", "HOSTMETAL_SCHEDULE is 'random:x'"),
        ("HOSTMETAL_SCHEDULE", "forward", "HOSTMETAL_SCHEDULE is 'forward'"),
    ],
)  # fmt: skip
def test_no_check(program: Path, variable: str, value: str, says: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(says)):
        run(program, "library_lists_its_functions", **{variable: value})


def test_library_without_checks(program: Path) -> None:
    """It runs, and says that nothing looks at its kernels."""
    said = run(program, "library_lists_its_functions", HOSTMETAL_CHECK="race")
    assert "fixture.metallib' was compiled without checks" in said
    assert "compile it with 'metal -fshader-checks'" in said
    assert "without checks" not in run(program, "library_lists_its_functions")


@pytest.mark.parametrize("schedule", ["reverse", "one-simdgroup", "random:5"])
def test_schedule(program: Path, schedule: str) -> None:
    run(program, "source_compiles_and_runs", HOSTMETAL_SCHEDULE=schedule)


AGAIN = pytest.mark.full("each case has run alone, on all cores, and with seven threads")


@pytest.mark.parametrize(
    "threads",
    [
        pytest.param("1", marks=AGAIN),
        pytest.param("2", marks=AGAIN),
        pytest.param("7", marks=AGAIN),
    ],
)
def test_all_cases_in_one_process(program: Path, threads: str) -> None:
    run(program, HOSTMETAL_NUM_THREADS=threads)


def test_failing_check_fails(program: Path) -> None:
    """The harness itself: an unknown case must not count as passed."""
    with pytest.raises(AssertionError, match="no case of that name"):
        run(program, "there_is_no_such_case")
