"""The libraries' symbols of TensorFlow are exported by the release they are built for: for all that are built
here."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

from metal_ops import _library, _version
from tests.processes import ROOT

pytestmark = [
    pytest.mark.ops,
    pytest.mark.any_simd,
    pytest.mark.release,
    pytest.mark.skipif(sys.platform != "linux", reason="reads ELF files"),
]

HERE = _library.build_info()["tensorflow"].rpartition(".")[0]
LIBRARIES = ("_metal_ops.so", "_metal_kernels.so", "libmetal_device.so")
# Gone from libtensorflow_framework in 2.19, although kernels_experimental.h declares them still; logging in 2.21.
DROPPED = (
    r"TF_(Assign\w*Variable|GetInputTensorFromVariable|\w*VariableInputLock\w*|IsRefInput|\w*Variant"
    r"|\w*RefInput\w*|D?V?Log)"
)


def built(release: str) -> Path | None:
    """Where that release's libraries are, if they are built."""
    # In a copy that tools/other_release.sh made, the checkout and its other copies are elsewhere.
    root = ROOT.parents[1] if ROOT.parent.name == "build" else ROOT
    found = ROOT if release == HERE else root / "build" / f"tf-{release}"
    if root != ROOT and release == own_release(root):
        found = root
    return found if (found / "python/metal_ops/libmetal_device.so").exists() else None


@functools.cache
def own_release(checkout: Path) -> str:
    """The release that a checkout is built for without TF=."""
    return subprocess.check_output([checkout / "tools/setup.sh", "--release"], text=True).strip()


def tree(release: str) -> Path:
    """The same. A release that was not built has no symbols to look at, so the test is skipped."""
    found = built(release)
    if found is None:
        pytest.skip(f"not built here: make TF={release} metal")
    return found


def tensorflow(release: str) -> list[Path]:
    """Its libraries."""
    folder = (tree(release) / "build/tensorflow/rpath").read_text().split("-rpath,")[1]
    return [tree(release) / folder / f"libtensorflow_{name}.so.2" for name in ("framework", "cc")]


@functools.cache
def symbols(library: Path, kind: str) -> frozenset[str]:
    """Names of the dynamic symbols that it defines, or needs of others: "--defined-only", "--undefined-only"."""
    command = ["nm", "-D", "--format=posix", kind, library]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return frozenset(re.findall(r"^([^\s@]+)(?:@\S*)? (?![wv] )", out, re.M))


def missing(library: Path, release: str) -> set[str]:
    """The symbols that none of the linked libraries has, with TensorFlow of that release among them."""
    linked = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    found = {Path(path) for path in re.findall(r"(/\S+) \(0x", linked)}
    found = {path for path in found if "tensorflow" not in path.name} | set(tensorflow(release))
    needed = symbols(library, "--undefined-only")
    return set(needed).difference(*(symbols(path, "--defined-only") for path in sorted(found)))


@pytest.mark.parametrize("release", _version.TENSORFLOW_RELEASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_all_are_there(library, release):
    path = tree(release) / "python" / "metal_ops" / library
    assert len(symbols(path, "--undefined-only")) > 100
    assert missing(path, release) == set()


@pytest.mark.parametrize("release", _version.TENSORFLOW_RELEASES)
@pytest.mark.parametrize("library", LIBRARIES)
def test_none_that_later_releases_dropped(library, release):
    path = tree(release) / "python" / "metal_ops" / library
    assert [s for s in symbols(path, "--undefined-only") if re.fullmatch(DROPPED, s)] == []


def test_control_the_list_of_what_was_dropped():
    releases = list(_version.TENSORFLOW_RELEASES)
    framework = symbols(tensorflow(HERE)[0], "--defined-only")
    dropped = {"Log" in s for s in framework if re.fullmatch(DROPPED, s)}
    assert (False in dropped) == (releases.index(HERE) < releases.index("2.19"))
    assert (True in dropped) == (releases.index(HERE) < releases.index("2.21"))


def test_control_another_release_lacks_some():
    """The reason why import refuses it, except 2.18 and 2.19: each has the symbols that the other's libraries need."""
    releases = list(_version.TENSORFLOW_RELEASES)
    others = [r for r in releases if r != HERE and {r, HERE} != {"2.18", "2.19"} and built(r)]
    if not others:
        # There is nothing to compare with yet. CI runs this again in the tree for 2.21, which sees the one around it.
        pytest.skip("no other release is built here: make TF=2.21 metal")
    farthest = max(others, key=lambda r: abs(releases.index(r) - releases.index(HERE)))
    lacking = missing(tree(farthest) / "python" / "metal_ops" / LIBRARIES[0], HERE)
    assert any("absl" in name or "tensorflow" in name for name in lacking)
