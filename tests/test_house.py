"""Every op family has all of its parts: op, CPU kernel, Metal kernel, shader, Python, test, documentation."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from metal_ops import _version
from tests.processes import ROOT

# (family, part): why it has none of its own.
EXCEPTIONS = {
    ("fused_conv2d", "shader"): "a convolution is a product: fused_matmul.metal does both",
    ("metal_kernel", "shader"): "its shaders are its users'",
    ("scale_slope", "python"): "the gradient of the losses, of focal and robust loss alike",
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
    """The file that says what a family's ops are: beside its kernels or, where TensorFlow's macro does, in ops/."""
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
    described = re.findall(r"^### (\w+)$", (root / "docs" / "ops.md").read_text(), re.M)
    text = declaration(root, family).read_text() if ops else ""
    # Kernels of a formula of the elements follow from the declaration.
    formulas = bool(ops) and text.count(".Elementwise<") == len(ops)
    parts = {
        "op": bool(ops),
        "description": bool(ops) and text.count(".Doc(") >= len(ops),
        "cpu kernel": formulas or any(folder.glob("*_cpu.cc")),
        "metal kernel": formulas or any(folder.glob("*_metal.mm")),
        "shader": any(folder.glob("*.metal")),
        "python": python.exists() and "__all__" in python.read_text(),
        "test": any(root.glob(f"tests/**/test_{family}.py")),
        "documentation": bool(ops) and set(ops) <= set(described),
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
        ("documentation", "docs/ops.md"),
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
        (tmp_path / path).write_text(text.replace("### ZeroOut", "### Other"))
    else:
        (tmp_path / path).unlink()
    assert part in missing(tmp_path, "zero_out")


def test_files_that_python_people_expect():
    package = ROOT / "python" / "metal_ops"
    assert (package / "py.typed").exists() and (package / "raw_ops.pyi").exists()
    for name in (".editorconfig", ".pre-commit-config.yaml", "CONTRIBUTING.md", "CHANGELOG.md"):
        assert (ROOT / name).exists()


def test_a_new_op_edits_nothing(tmp_path: Path):
    """`make new-op` writes all that this file asks for but the generated pages, into files of its own."""
    from tools import new_op

    for path in new_op.FILES:
        copy = tmp_path / new_op.rename(path, "another_op")
        assert not (ROOT / new_op.rename(path, "another_op")).exists()
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(new_op.rename((ROOT / path).read_text(), "another_op"))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "ops.md").write_text("")
    assert families(tmp_path) == ["another_op"]
    assert op_names(tmp_path, "another_op") == ["AnotherOp"]
    assert missing(tmp_path, "another_op") == {"documentation"}


# pip reads no Python file.
REPEATS = {"pyproject.toml", "hostmetal/pyproject.toml", "requirements.txt"}
ROOMS = ("ops", "kernels", "graph", "hostmetal", "device", "python", "tools", "examples", "docs")
TEXTS = {".py", ".mk", ".sh", ".md", ".toml", ".txt", ".bzl", ".cc", ".mm", ".h", ""}


def wrong_versions(path: str, text: str) -> list[str]:
    """TensorFlow's versions that a file should not name, or names wrongly."""
    if path in REPEATS or path.startswith("docs/"):
        pinned = re.findall(r"tensorflow(?:-cpu)?==([\d.]+)", text)
        return [version for version in pinned if version != _version.TENSORFLOW]
    return re.findall(rf"\b{re.escape(_version.TENSORFLOW_RELEASE)}\b(?:\.\d+)?", text)


def test_the_version_of_tensorflow_is_said_once():
    files = [*ROOT.iterdir(), *(file for room in ROOMS for file in (ROOT / room).rglob("*"))]
    texts = [file for file in files if file.suffix in TEXTS and file.is_file()]
    assert len(texts) > 500
    for file in texts:
        path = str(file.relative_to(ROOT))
        if path != "python/metal_ops/_version.py" and not path.startswith(("CHANGELOG", ".")):
            assert wrong_versions(path, file.read_text()) == [], path
    for path in REPEATS:
        assert f"=={_version.TENSORFLOW}" in (ROOT / path).read_text(), path


def test_control_a_second_version_is_seen():
    assert wrong_versions("tools/x.sh", f"pip install {_version.TENSORFLOW}") == [
        _version.TENSORFLOW
    ]
    assert wrong_versions("docs/x.md", "`tensorflow-cpu==1.2.3`") == ["1.2.3"]
    assert wrong_versions("docs/x.md", f"`tensorflow-cpu=={_version.TENSORFLOW}`") == []
