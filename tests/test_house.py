"""Every op family has all of its parts: op, CPU kernel, Metal kernel, shader, Python, test, documentation."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from metal_ops import _version
from tests.processes import ROOT

pytestmark = pytest.mark.house

# (family, part): why it has none of its own.
EXCEPTIONS = {
    ("fused_conv2d", "shader"): "a convolution is a product: fused_matmul.metal does both",
    ("fused_batch_norm_grad", "python"): "the fusion pass makes it of gradients, nobody writes it",
    ("fused_bias_grad", "python"): "the same",
    (
        "rope_tables",
        "python",
    ): "the fusion pass makes it of elementary ops; rope is for those who write it",
    ("metal_kernel", "shader"): "its shaders are its users'",
    ("scale_slope", "python"): "the gradient of the losses, of focal and robust loss alike",
    ("optimizer_step", "python"): "the fusion pass makes its ops, and nobody else",
}


def families(root: Path) -> list[str]:
    """The folders of kernels/ that hold an op family: a declaration, kernel or shader is named after them."""
    parts = ("{}_op.cc", "{}_cpu.cc", "{}_metal.mm", "{}.metal")
    folders = (root / "kernels").iterdir()
    return sorted(
        path.name
        for path in folders
        if any((path / part.format(path.name)).exists() for part in parts)
    )


def declaration(root: Path, family: str) -> Path:
    """The file that declares a family's ops: beside its kernels or, where TensorFlow's macro does, in ops/."""
    beside = root / "kernels" / family / f"{family}_op.cc"
    registered = root / "ops" / f"{family}_op.cc"
    return registered if registered.exists() else beside


def op_names(root: Path, family: str) -> list[str]:
    path = declaration(root, family)
    found = r"^(?:DECLARE|REGISTER)_OP\(\"(\w+)\"\)"
    return re.findall(found, path.read_text(), re.M) if path.exists() else []


def missing(root: Path, family: str) -> set[str]:
    """The parts that a family lacks, exceptions included."""
    folder, ops = root / "kernels" / family, op_names(root, family)
    python = root / "python" / "metal_ops" / "ops" / f"{family}.py"
    recorded = re.findall(r'^{"op": "(\w+)"', (root / "docs" / "dtypes.jsonl").read_text(), re.M)
    text = declaration(root, family).read_text() if ops else ""
    # Kernels of a formula of the elements follow from the declaration.
    formulas = bool(ops) and text.count(".Elementwise<") == len(ops)
    parts = {
        "op": bool(ops),
        "description": bool(ops) and text.count(".Doc(") >= len(ops),
        # MetalKernel's is TensorFlow's alone, and lies with the adapter.
        "cpu kernel": formulas
        or any(
            any(place.glob(f"{family}*_{kind}.cc"))
            for place in (folder, folder.parent / "tensorflow")
            for kind in ("cpu", "simd")
        ),
        "metal kernel": formulas or any(folder.glob("*_metal.mm")),
        "shader": any(folder.glob("*.metal")),
        "python": python.exists() and "__all__" in python.read_text(),
        "test": any(root.glob(f"tests/**/test_{family}.py")),
        "documentation": bool(ops) and set(ops) <= set(recorded),
    }
    return {part for part, there in parts.items() if not there}


@pytest.mark.parametrize("family", families(ROOT))
def test_family_has_all_parts(family: str):
    excused = {part for name, part in EXCEPTIONS if name == family}
    assert missing(ROOT, family) - excused == set()
    assert excused <= missing(ROOT, family), "an exception that is not needed"


def test_every_op_file_has_its_folder():
    found = {declaration(ROOT, family) for family in families(ROOT)}
    assert len(found) > 10
    for path in [*(ROOT / "ops").glob("*.cc"), *(ROOT / "kernels").glob("**/*.cc")]:
        if re.search(r"^(REGISTER|DECLARE)_OP\(", path.read_text(), re.M):
            assert path in found, path


@pytest.mark.parametrize(
    "part, path",
    [
        ("op", "kernels/zero_out/zero_out_op.cc"),
        ("cpu kernel", "kernels/zero_out/zero_out_cpu.cc"),
        ("metal kernel", "kernels/zero_out/zero_out_metal.mm"),
        ("shader", "kernels/zero_out/zero_out.metal"),
        ("python", "python/metal_ops/ops/zero_out.py"),
        ("documentation", "docs/dtypes.jsonl"),
        ("test", "tests/test_zero_out.py"),
    ],
)
def test_control_a_missing_part_is_seen(part: str, path: str, tmp_path: Path):
    for name in ("kernels/zero_out", "ops", "python/metal_ops/ops", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_zero_out.py").write_text("")
    assert missing(tmp_path, "zero_out") == set()
    if part == "documentation":
        text = (tmp_path / path).read_text()
        (tmp_path / path).write_text(text.replace('"ZeroOut"', '"Other"'))
    else:
        (tmp_path / path).unlink()
    assert part in missing(tmp_path, "zero_out")


def test_files_that_python_people_expect():
    package = ROOT / "python" / "metal_ops"
    assert (package / "py.typed").exists() and (package / "raw_ops.pyi").exists()
    for name in (".editorconfig", ".pre-commit-config.yaml", "CONTRIBUTING.md", "CHANGELOG.md"):
        assert (ROOT / name).exists()


# The package's and the tools' view of the copy that they run in.
SEEN = """
import dataclasses, json, pathlib
import metal_ops
from metal_ops import raw_ops
from metal_ops.ops import _declared
# What the library says of the copy when it is built: its template's words, and another name.
told = _declared.declarations()
told["anotherop"] = dataclasses.replace(told["nullop"], name="AnotherOp")
for end in ("", "_eager_fallback"):
    setattr(raw_ops._generated, "another_op" + end, getattr(raw_ops._generated, "null_op" + end))
from benchmarks import op_calls, registry
from tests.fuzz import calls
from tools.mutation import rooms
from tools.reference import api, stub
print(json.dumps({
    "function": metal_ops.another_op.__module__,
    "package": "from metal_ops.ops.another_op import *" in stub.render_ops(pathlib.Path(metal_ops.ops.__path__[0])),
    "reference": "### another_op\\n" in api.render(),
    "mutation": rooms.FAMILIES["another_op"],
    "fuzz": sorted(calls.tables()[0]["another_op"]),
    "benchmark": [case.name for case in registry.all_cases() if "another_op" in case.name],
    "what is measured": op_calls.make("another_op", 1000)["x"].shape,
}))
"""


def globs(text: str) -> list[str]:
    """The patterns of a BUILD file's globs."""
    return [
        pattern
        for found in re.findall(r"glob\(\s*\[(.*?)\]", text, re.S)
        for pattern in re.findall(r'"(.+?)"', found)
    ]


def test_a_new_op_edits_nothing(tmp_path: Path):
    """`make new-op` in a copy of the checkout: new files, and nothing else; every part of the house finds them."""
    from tools import new_op

    copy = tmp_path / "metal_ops"
    ignored = shutil.ignore_patterns(
        *("build", ".*", "dist", "runs", "results", "saved", "__pycache__", "*.so", "*.metallib")
    )
    shutil.copytree(ROOT, copy, ignore=ignored, symlinks=True)

    def git(*arguments: str) -> str:
        identity = ("-c", "user.name=test", "-c", "user.email=test@localhost")
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=copy, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("add", "-A")
    git("commit", "-q", "-m", "before")
    subprocess.run(
        [sys.executable, "tools/new_op.py", "another_op"], cwd=copy, check=True, capture_output=True
    )
    # Its line of docs/dtypes.jsonl follows by `make docs-reference ARGS=--dtypes`.
    new = {new_op.rename(path, "another_op") for path in new_op.FILES}
    assert set(git("status", "--porcelain", "-uall").splitlines()) == {f"?? {path}" for path in new}
    assert "another_op" in families(copy) and op_names(copy, "another_op") == ["AnotherOp"]
    assert missing(copy, "another_op") == {"documentation"}

    # The builds'.
    found = set()
    for rules in ("kernels/rules.mk", "hostmetal/msl/rules.mk"):
        for patterns in re.findall(
            r"^\w+ := \$\(wildcard (.*)\)$", (copy / rules).read_text(), re.M
        ):
            found |= {path for pattern in patterns.split() for path in copy.glob(pattern)}
    assert {copy / path for path in new if path.endswith((".cc", ".metal"))} <= found
    found = set()
    for room in ("kernels", "python", "tests"):
        for pattern in globs((copy / room / "BUILD").read_text()):
            found |= set((copy / room).glob(pattern))
    assert {copy / path for path in new} <= found

    # Python's. The op itself is not in the library that is loaded.
    (copy / "python/metal_ops/_metal_ops.so").symlink_to(ROOT / "python/metal_ops/_metal_ops.so")
    done = subprocess.run(
        [sys.executable, "-c", SEEN],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": f"{copy / 'python'}:{copy}", "METAL_OPS_DEVICE": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "function": "metal_ops.ops.another_op",
        "package": True,
        "reference": True,
        "mutation": ["tests/metal_kernels/on_device/test_another_op.py"],
        "fuzz": ["scale", "x"],
        "benchmark": ["ops-another_op"],
        "what is measured": [1000, 3],
    }


# pip reads no Python file.
REPEATS = {"pyproject.toml", "hostmetal/pyproject.toml", "requirements.txt"}
ROOMS = ("ops", "kernels", "graph", "hostmetal", "device", "python", "tools", "examples", "docs")
TEXTS = {".py", ".mk", ".sh", ".md", ".toml", ".txt", ".bzl", ".cc", ".mm", ".h", ""}


VERSIONS = {version for version, _, _ in _version.TENSORFLOW_RELEASES.values()}
DEFAULT, *_, NEWEST = _version.TENSORFLOW_RELEASES.values()


def wrong_versions(path: str, text: str) -> list[str]:
    """TensorFlow's versions that a file should not name, or names wrongly."""
    if path in REPEATS or path.startswith("docs/"):
        pinned = re.findall(r"tensorflow(?:-cpu)?==([\d.]+)", text)
        return [version for version in pinned if version not in VERSIONS]
    return re.findall("|".join(map(re.escape, sorted(VERSIONS))), text)


def test_the_versions_of_tensorflow_are_said_once():
    files = [*ROOT.iterdir(), *(file for room in ROOMS for file in (ROOT / room).rglob("*"))]
    texts = [file for file in files if file.suffix in TEXTS and file.is_file()]
    assert len(texts) > 500
    for file in texts:
        path = str(file.relative_to(ROOT))
        if path != "python/metal_ops/_version.py" and not path.startswith(("CHANGELOG", ".")):
            assert wrong_versions(path, file.read_text()) == [], path
    for path in REPEATS:
        assert f"=={DEFAULT[0]}" in (ROOT / path).read_text(), path
        # Python 3.13 has wheels of the newest alone.
        if path != "requirements.txt":
            assert f"=={NEWEST[0]}" in (ROOT / path).read_text(), path


def test_control_a_second_version_is_seen():
    assert wrong_versions("tools/x.sh", f"pip install {DEFAULT[0]}") == [DEFAULT[0]]
    assert wrong_versions("docs/x.md", "`tensorflow-cpu==1.2.3`") == ["1.2.3"]
    assert wrong_versions("docs/x.md", f"`tensorflow-cpu=={DEFAULT[0]}`") == []


def test_docstrings_are_indented_alike():
    """The text of a section is two spaces in."""
    section = re.compile(r"^( *)(?:Args|Attributes|Returns|Raises|Example):\n( *)", re.M)
    depths = {
        f"{path.relative_to(ROOT)}: {found[0]!r}": len(found[2]) - len(found[1])
        for path in (ROOT / "python").rglob("*.py")
        for found in section.finditer(path.read_text())
    }
    assert len(depths) > 200
    assert {place for place, depth in depths.items() if depth != 2} == set()
