"""PyTorch's adapter without PyTorch: schemas and gradients as they are recorded, imports, and its size.

`make test-torch` runs the rest, in an environment that has PyTorch.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from metal_ops import _library
from tests.adapter.test_plain_adapter import highway_flags
from tests.processes import ROOT

pytestmark = pytest.mark.ops

RECORD = ROOT / "tests/torch/declarations.txt"
FOLDERS = (ROOT / "kernels/torch", ROOT / "python/metal_ops/torch")
MOST_LINES = 1500
# Written with the ops, as anyone's modules are.
ABOVE_THE_ADAPTER = {"modules.py", "rendering.py"}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The adapter's description of all ops."""
    program = tmp_path_factory.mktemp("torch") / "schemas"
    objects = sorted(ROOT.glob("build/kernels/*/*_op.o"))
    command = [
        os.environ.get("CXX", "c++"),
        *("-std=c++17", "-I.", "tests/adapter/torch_schemas.cc", *map(str, objects)),
        *("-o", str(program), *highway_flags()),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


def declared() -> ModuleType:
    """The module that reads that. Its package asks for PyTorch."""
    spec = importlib.util.spec_from_file_location(
        "metal_ops_torch_declared", FOLDERS[1] / "_declared.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_declarations_are_as_recorded(described: str) -> None:
    assert described == RECORD.read_text(), "record them with `make test-torch ARGS=--record`"


def test_every_op_is_there_but_updates_of_variables(described: str) -> None:
    lines = _library.declarations()
    variables, op = set(), ""
    for kind, name, *more in lines:
        op = name if kind == "op" else op
        if kind == "input" and more[1]:
            variables.add(op)
    ops = {line[1] for line in lines if line[0] == "op"}
    assert variables and set(declared().read(described)) == ops - variables


def test_gradients_name_what_is_declared(described: str) -> None:
    ops = declared().read(described)
    assert sum(bool(op.rules) for op in ops.values()) > 20
    for op in ops.values():
        for rule in op.rules:
            other = ops[rule.op]
            assert all(target == "_" or op.input(target) >= 0 for target in rule.targets)
            assert len(rule.targets) == len(other.outputs)
            assert len(rule.arguments) == len(other.inputs)
            for name in rule.names:
                last = name.split()[-1]
                known = op.output(last) >= 0 or (" " not in name and op.input(last) >= 0)
                assert known, f"{op.declared}: {name}"
            assert set(rule.attrs) <= set(other.attrs)
            condition = rule.condition.lstrip("!").partition("=")[0]
            assert not condition or condition in op.attrs


@pytest.mark.parametrize("text", ["x = Op", "x Op(y)", "= Op(y)", "x = Op(y) if"])
def test_a_rule_that_is_not_one_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not written as gradient.h says"):
        declared().read_rule(text)


def test_it_has_no_more_lines_than_it_may() -> None:
    files = [
        path
        for folder in FOLDERS
        for path in folder.iterdir()
        if path.suffix in (".cc", ".h", ".py") and path.name not in ABOVE_THE_ADAPTER
    ]
    assert (
        len(files) > 6 and sum(len(path.read_text().splitlines()) for path in files) <= MOST_LINES
    )


def imported(missing: str, program: str) -> str:
    """The output of a program where a package is not installed."""
    text = f"import sys\nsys.modules[{missing!r}] = None\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(Path("python"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


ASK = "try: {}\nexcept ImportError as error: print(error)"


def test_metal_ops_imports_without_tensorflow() -> None:
    said = imported("tensorflow", "import metal_ops\n" + ASK.format("metal_ops.hash_encode"))
    assert said.startswith("metal_ops: TensorFlow cannot be imported") and "pip install" in said


def test_without_pytorch_it_says_what_is_missing() -> None:
    program = "sys.modules['tensorflow'] = None\n" + ASK.format("import metal_ops.torch")
    said = imported("torch", program)
    assert said == (
        "metal_ops.torch: PyTorch is not installed; `pip install 'torch>=2.10'` (for the CPU)."
    )
