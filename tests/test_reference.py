"""The reference: generated pages and stubs have their rows and are not git's; what is recorded is so."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, Process
from tools.reference import __main__ as reference
from tools.reference import errors, records, support
from tools.reference.__main__ import ask_device

pytestmark = pytest.mark.docs

STUBS = ["python/metal_ops/raw_ops.pyi", "python/metal_ops/ops/__init__.pyi"]


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    """The generated pages, by the names that `make docs` gives them in docs/."""
    return {name: reference.render(name) for name in reference.PAGES}


def test_generated_pages_have_their_rows(generated: dict[str, str]):
    """One for each name, op, pattern, example and feature, found by other ways than the generators'."""
    import metal_ops
    from metal_ops import fusion, raw_ops
    from tests.msl.language import SECTIONS
    from tools.reference import api

    def headings(page: str, level: int) -> list[str]:
        plain = re.sub(r"^```.*?^```$", "", generated[page], flags=re.M | re.S)
        return re.findall(rf"^#{{{level}}} (.*)$", plain, re.M)

    def first_cells(page: str) -> list[str]:
        rows = re.findall(r"^\| (?!\*\*)(.*?) \|", generated[page], re.M)
        return [re.sub(r"^\[(.*)\]\(\S+\)$", r"\1", cell) for cell in rows]

    functions = {name for name in metal_ops.__all__ if inspect.isfunction(getattr(metal_ops, name))}
    assert len(functions) > 40 and functions <= set(headings("api.md", 3))
    for module in api.MODULES:
        of_module = {f"{module}.{name}" for name in getattr(metal_ops, module).__all__}
        assert of_module <= set(headings("api.md", 3)), module
    assert {f"`{name}`" for name in functions} <= set(first_cells("api.md"))
    ops = {heading.lower() for heading in headings("ops.md", 3)}
    assert ops == {name.replace("_", "") for name in dir(raw_ops)} and len(ops) > 50
    assert {op.lower() for op in first_cells("support.md")} >= ops
    measured = {*records.read(records.ERRORS), *records.read(records.DEVICE_ERRORS)}
    exact = re.findall(r"^Exact with .*: (.*)\.$", generated["errors.md"], re.M)[0].split(", ")
    assert {*first_cells("errors.md"), *exact} - {"op"} == measured
    names = [pattern.name for pattern in fusion.patterns()]
    assert len(names) > 10 and headings("fusions.md", 2) == names
    shown = re.findall(r'--8<-- "examples/(\w+\.py)"', generated["examples.md"])
    assert sorted(shown) == sorted(path.name for path in ROOT.glob("examples/*.py"))
    features = [feature for rows in SECTIONS.values() for feature in rows]
    assert len(features) > 200
    assert set(first_cells("metal-language.md")) >= {
        f.name.strip().replace("|", "\\|") for f in features
    }


def test_generated_pages_are_written_where_they_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(reference, "PAGES", {"examples.md": ("examples", ())})
    assert reference.write(tmp_path) == ["examples.md"] and reference.write(tmp_path) == []
    (tmp_path / "examples.md").write_text("of another day")
    assert reference.write(tmp_path) == ["examples.md"]
    assert (tmp_path / "examples.md").read_text() == reference.render("examples.md")


def test_git_knows_no_generated_file():
    """Neither pages, stubs nor results as JSON; .gitignore names what is made here."""
    made = [f"docs/{name}" for name in reference.PAGES] + STUBS
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "docs/dtypes.md" in listed and len(listed) > 500
    assert not {*listed} & {*made}
    assert not [name for name in listed if name.endswith(".pyi")]
    ignored = subprocess.run(
        ["git", "check-ignore", *made], cwd=ROOT, capture_output=True, text=True
    ).stdout.splitlines()
    assert ignored == made


def test_records_are_a_line_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    paths = [*ROOT.glob("docs/*.jsonl"), ROOT / "tests" / "mutation.jsonl"]
    assert set(records.KEY) < set(paths) and not [*ROOT.glob("docs/*.json")]
    assert sum(len(path.read_text().splitlines()) for path in paths) <= records.MOST_LINES
    for path in [*records.KEY]:
        rows = records.read(path)
        copy = tmp_path / path.name
        monkeypatch.setitem(records.KEY, copy, records.KEY[path])
        rows = {name: dict(reversed(row.items())) for name, row in rows.items()}
        records.write(copy, rows if path == records.NUMBERS else dict(reversed(rows.items())))
        assert copy.read_text() == path.read_text() and len(rows) > 20
    copy.write_text('{"op": "A"}\n["op"]\n')
    with pytest.raises(ValueError, match=rf"{copy.name}:2: expected an object with 'op', got"):
        records.read(copy)


def test_dtypes_are_those_of_the_kernels():
    told = "run `make docs-reference ARGS=--dtypes`"
    found = records.read(records.DTYPES)
    assert found == ask_device("dtypes"), told
    assert reference.SMALL_TABLE.read_text() == support.small(found), told


def measured_here() -> dict:
    """The figures of ask_device("errors"), by a fork."""
    return Process("-m", "tools.reference.device_facts", "errors").result()


def test_errors_are_as_measured():
    """The same ops, dtypes and devices; each figure within a factor of two, as machines differ in their SIMD."""
    committed, measured = (flat(f) for f in (records.read(records.ERRORS), measured_here()))
    assert set(committed) == set(measured), "run `make docs-reference ARGS=--measure`"
    off = {
        key: (committed[key], measured[key])
        for key in committed
        if not agree(committed[key], measured[key], may_part(*key))
    }
    assert not off, f"committed and measured: {off}"


@pytest.mark.full("measures in a process of its own; test_errors_are_as_measured measures all")
def test_an_op_is_measured_alone(monkeypatch: pytest.MonkeyPatch, capsys):
    """Its figures and no others change; of a name without a case it is said, and nothing is written."""
    committed = {path: path.read_text() for path in records.KEY}
    assert list(ask_device("errors", "ZeroOut")) == ["ZeroOut"]

    def measured(*arguments: str) -> dict:
        assert arguments == ("errors", "ZeroOut", "NoOp")
        return {"ZeroOut": {}}

    monkeypatch.setattr(reference, "ask_device", measured)
    monkeypatch.setattr(sys, "argv", ["tools.reference", "--measure", "ZeroOut", "NoOp"])
    with pytest.raises(SystemExit):
        reference.main()
    assert "no case in tools/reference/error_cases/ is of NoOp" in capsys.readouterr().err
    assert {path: path.read_text() for path in records.KEY} == committed


# Where the devices differ by a rounding on one machine, they may not on another.
UNIT = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# Atomics add these on the device, in another order from run to run: some roundings (2.4e-7 seen).
IN_ANY_ORDER = {"HashEncodeGrad", "HashEncodeJvpGrad"}
# The state is rounded at every step (1.6 roundings seen on a processor without AVX-512).
OF_STEPS = {"RecurrentSequence"}


def may_part(op: str, dtype: str, column: str) -> float:
    """How far apart the devices may be whatever was measured before."""
    if column != "apart":
        return 0.0
    if op in IN_ANY_ORDER and dtype == "float32":
        return 4 * UNIT[dtype]
    return UNIT[dtype] * (2 if op in OF_STEPS and dtype == "bfloat16" else 1)


def flat(figures: dict) -> dict[tuple[str, str, str], float]:
    return {
        (o, t, d): e for o, ts in figures.items() for t, ds in ts.items() for d, e in ds.items()
    }


def agree(a: float, b: float, floor: float = 0.0) -> bool:
    return a == b or max(a, b) <= floor or (min(a, b) > 0 and max(a, b) <= 2 * min(a, b))


def test_control_agree():
    assert agree(0, 0) and agree(1e-7, 2e-7) and agree(2e-7, 1e-7) and agree(0, 1e-7, 1.2e-7)
    assert not agree(0, 1e-7) and not agree(1e-7, 2.1e-7) and not agree(0, 1e-6, 1.2e-7)


def test_every_op_is_measured():
    """In each float dtype that both devices have kernels for; what counts or packs integers has no error."""
    figures = records.read(records.ERRORS)
    ours = {op: row for op, row in records.read(records.DTYPES).items() if "CPU" in row}
    assert set(ours) >= set(figures) and len(figures) > 20
    for op, devices in ours.items():
        wanted = set(UNIT) & set(devices["CPU"]) & set(devices["GPU"])
        assert set(figures.get(op, {})) == wanted, (
            f"{op}: tools/reference/error_cases/ has no case of it for some dtype"
        )


def test_control_pages_depend_on_what_they_are_made_of(generated: dict[str, str]):
    figures, of_device = (records.read(path) for path in (records.ERRORS, records.DEVICE_ERRORS))
    page = generated["errors.md"]
    assert errors.render(figures, of_device) == page
    of_device["MatMul"]["float32"]["GPU"] *= 3
    assert errors.render(figures, of_device) != page
    figures["HashEncode"]["float32"]["CPU"] *= 3
    assert errors.render(figures, records.read(records.DEVICE_ERRORS)) != page
    alone = {"ZeroOut": {"CPU": ["float32"], "GPU": []}, "Abs": {"GPU": ["float16"]}}
    assert "| CPU |" in support.render(alone) and "| both |" not in support.render(alone)
    assert "| Abs | float16 |" in support.render(alone)
    assert "| float32 |  | ZeroOut |" in support.small(alone)


def test_stub_types(tmp_path: Path):
    """A type checker sees the raw ops: their names, their choices, their outputs."""
    user = tmp_path / "user.py"
    user.write_text(
        "from metal_ops import raw_ops\n"
        "raw_ops.hash_encode(1, 2, 3, log2_per_level_scale=1.0, resolution_coarsest=16)\n"
        "raw_ops.hash_encode(1, 2, 3, log2_per_level_scale='1', resolution_coarsest=16)\n"
        "raw_ops.packed_scan(1, 2, reduction='mean')\n"
        "raw_ops.hash_decode(1)\n"
        "raw_ops.volume_render(1, 2, 3, 4, 5, 6).rgb\n"
        "raw_ops.volume_render(1, 2, 3, 4, 5, 6).colour\n"
    )
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    options.append(f"--cache-dir={tmp_path}")  # that of another run may be of another state
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(user)], capture_output=True, text=True
    )
    lines = [int(number) for number in re.findall(r"user\.py:(\d+): error", done.stdout)]
    assert lines == [3, 4, 5, 7], done.stdout


def test_stub_is_that_of_the_library(tmp_path: Path):
    """By mypy's own comparison of a stub with the module: names, arguments, their order and defaults."""
    config = tmp_path / "mypy.ini"
    config.write_text(f"[mypy]\nignore_missing_imports = True\ncache_dir = {tmp_path}\n")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy.stubtest",
            "metal_ops.raw_ops",
            f"--mypy-config-file={config}",
        ],
        capture_output=True,
        text=True,
        env=os.environ | {"METAL_OPS_DEVICE": "", "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    assert done.returncode == 0, done.stdout
