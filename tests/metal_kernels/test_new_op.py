"""`make new-op`: the names it takes, the files it writes. That the copy builds and passes is tested by
test_guide.py."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import new_op  # noqa: E402


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Only the files that the tool reads."""
    for path in ("tools/new_op.py", *new_op.FILES):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(tree / "tools" / "new_op.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_copies_all_parts_and_leaves_no_trace_of_the_template(tree: Path) -> None:
    before = {path for path in tree.rglob("*") if path.is_file()}
    done = run(tree, "soft_sign2")
    assert done.returncode == 0, done.stderr
    new = {path for path in tree.rglob("*") if path.is_file()} - before
    assert len(new) == len(new_op.FILES)
    for path in new:
        text = path.read_text()
        assert "soft_sign2" in path.name and "null" not in path.name.lower()
        assert not [
            line for line in text.splitlines() if "NullOp" in line or "null_op" in line.lower()
        ]
        assert "SoftSign2" in text or "SOFT_SIGN2" in text
        assert "new-op" not in text  # sentences about the template are not true of the copy


def test_copies_are_formatted(tree: Path) -> None:
    """Another name makes other lines; the list of parts stays a list."""
    (tree / ".venv").symlink_to(ROOT / ".venv")
    for name in (".clang-format", "pyproject.toml"):
        shutil.copy(ROOT / name, tree / name)
    assert run(tree, "an_op_of_much_longer_name").returncode == 0
    copies = [tree / new_op.rename(path, "an_op_of_much_longer_name") for path in new_op.FILES]
    python = [path for path in copies if path.suffix == ".py"]
    rest = [path for path in copies if path not in python]
    tools = tree / ".venv" / "bin"
    subprocess.run([tools / "clang-format", "--dry-run", "-Werror", *rest], check=True)
    subprocess.run([tools / "ruff", "format", "--check", *python], check=True)
    numbers = [line[5] for line in copies[0].read_text().splitlines() if line.startswith("//   ")]
    assert numbers == list("1234")


def test_the_template_has_all_its_files(tree: Path) -> None:
    stray = [
        path
        for folder in ("kernels/null_op", "ops", "python/metal_ops/ops", "tests/metal_kernels")
        for path in (ROOT / folder).rglob("*")
        if "null_op" in str(path.relative_to(ROOT)) and path.is_file() and path.suffix != ".pyc"
    ]
    assert sorted(str(path.relative_to(ROOT)) for path in stray) == sorted(new_op.FILES)


@pytest.mark.parametrize(
    "name",
    ("", "Foo", "2d", "a", "x_1", "foo-bar", "foo__bar", "_foo", "class", "null_op", "../foo"),
)
def test_refuses(tree: Path, name: str) -> None:
    before = sorted(tree.rglob("*"))
    done = run(tree, name)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1 and "Traceback" not in done.stderr
    assert sorted(tree.rglob("*")) == before
