"""Every op family has all of its parts: op, CPU kernel, Metal kernel, shader, Python, test, documentation."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.processes import ROOT

SHARED = ("common", "msl")
# (family, part): why it has none of its own.
EXCEPTIONS = {
    ("fused_conv2d", "shader"): "a convolution is a product: fused_matmul.metal does both",
    ("scale_slope", "python"): "the gradient of the losses, of focal and robust loss alike",
}
# Parts are named after the family; some families' ops have another stem.
STEMS = {"fused_conv2d": "metal_fused_conv2d", "fused_matmul": "metal_fused_matmul"}


def families(root: Path) -> list[str]:
    """The folders of kernels/ that hold an op family."""
    return sorted(
        path.name
        for path in (root / "kernels").iterdir()
        if path.is_dir() and path.name not in SHARED
    )


def op_names(root: Path, family: str) -> list[str]:
    path = root / "ops" / f"{STEMS.get(family, family)}_op.cc"
    return re.findall(r"REGISTER_OP\(\"(\w+)\"\)", path.read_text()) if path.exists() else []


def missing(root: Path, family: str) -> set[str]:
    """The parts that a family lacks, exceptions included."""
    folder, ops = root / "kernels" / family, op_names(root, family)
    python = root / "python" / "metal_ops" / "ops" / f"{family}.py"
    described = re.findall(r"^### (\w+)$", (root / "docs" / "ops.md").read_text(), re.M)
    source = root / "ops" / f"{STEMS.get(family, family)}_op.cc"
    parts = {
        "op": bool(ops),
        "description": bool(ops) and source.read_text().count(".Doc(") >= len(ops),
        "cpu kernel": any(folder.glob("*_cpu.cc")),
        "metal kernel": any(folder.glob("*_metal.mm")),
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
    stems = {STEMS.get(family, family) for family in families(ROOT)}
    paths = sorted((ROOT / "ops").glob("*_op.cc"))
    assert len(paths) >= len(stems) > 10
    for path in paths:
        if "REGISTER_OP(" in path.read_text():
            assert path.stem.removesuffix("_op") in stems, path


@pytest.mark.parametrize(
    "part, path",
    [
        ("op", "ops/null_op_op.cc"),
        ("cpu kernel", "kernels/null_op/null_op_cpu.cc"),
        ("metal kernel", "kernels/null_op/null_op_metal.mm"),
        ("shader", "kernels/null_op/null_op.metal"),
        ("python", "python/metal_ops/ops/null_op.py"),
        ("documentation", "docs/ops.md"),
        ("test", "tests/test_null_op.py"),
    ],
)
def test_control_a_missing_part_is_seen(part: str, path: str, tmp_path: Path):
    for name in ("kernels/null_op", "ops", "python/metal_ops/ops", "docs"):
        shutil.copytree(ROOT / name, tmp_path / name)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_null_op.py").write_text("")
    assert missing(tmp_path, "null_op") == set()
    if part == "documentation":
        text = (tmp_path / path).read_text()
        (tmp_path / path).write_text(text.replace("### NullOp", "### Other"))
    else:
        (tmp_path / path).unlink()
    assert part in missing(tmp_path, "null_op")


def test_files_that_python_people_expect():
    package = ROOT / "python" / "metal_ops"
    assert (package / "py.typed").exists() and (package / "raw_ops.pyi").exists()
    for name in (".editorconfig", ".pre-commit-config.yaml", "CONTRIBUTING.md", "CHANGELOG.md"):
        assert (ROOT / name).exists()


def test_new_op_copies_every_part():
    """What `make new-op` writes is what this file asks for."""
    from tools import new_op

    text = " ".join(new_op.FILES)
    for part in ("ops/", "_cpu.cc", "_metal.mm", ".metal", "python/metal_ops/ops/", "tests/"):
        assert part in text
