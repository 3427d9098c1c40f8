"""tools/setup.sh and make's calls of it, in a world of fake programs: the calls, and the output."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from metal_ops._version import TENSORFLOW_RELEASES as RELEASES
from tests.processes import ROOT

pytestmark = pytest.mark.house

CPU = {"g++", "libhwy-dev", "python3", "python3-venv"}
METAL = {"clang-19", "lld-19", "libgnustep-base-dev", "libobjc-12-dev", "libboost-context-dev"}
BROWSER = {"chromium-headless-shell"}
TOOLS = {"llvm-19", "gdb"}

# Shared by the fakes: a line per call, and a second one at the same time is noted.
ALONE = """#!/bin/bash
alone() {
  echo "$*" >> "$WORLD/calls"
  mkdir "$WORLD/busy" 2>/dev/null || echo overlap >> "$WORLD/calls"
  sleep 0.2
  rmdir "$WORLD/busy" 2>/dev/null
}
"""
# Installing a package puts a program or a header where tools/setup.sh looks for it.
APT_GET = (
    ALONE
    + r"""
alone apt-get "$@"
if [ -s "$WORLD/locked" ]; then
  sed -i 1d "$WORLD/locked"
  echo "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)" >&2
  exit 100
fi
case " $* " in *" update "*) cp "$WORLD/archive" "$WORLD/lists"; exit 0 ;; esac
packages=()
while [ $# -gt 0 ]; do
  case $1 in -o) shift ;; -* | install) ;; *) packages+=("$1") ;; esac
  shift
done
for package in "${packages[@]}"; do
  if grep -qx "$package" "$WORLD/unavailable"; then
    echo "E: Unable to locate package $package" >&2
    exit 100
  fi
done
program() { printf '#!/bin/sh\n%s\n' "$2" > "$WORLD/bin/$1" && chmod +x "$WORLD/bin/$1"; }
for package in "${packages[@]}"; do
  case $package in
    g++) cp "$WORLD/fakes/g++" "$WORLD/bin/g++"; cp "$WORLD/fakes/g++" "$WORLD/bin/gcc" ;;
    python3) cp "$WORLD/fakes/python" "$WORLD/bin/python3" ;;
    python3-venv | python3.*-venv) touch "$WORLD/venv" ;;
    libhwy-dev) touch "$WORLD/highway.h" ;;
    libboost-context-dev) touch "$WORLD/fiber.hpp" ;;
    libobjc-*-dev) mkdir -p "$WORLD/gcc/objc" && touch "$WORLD/gcc/objc/objc.h" ;;
    clang-19) program clang++-19 'echo "$*" >> "$WORLD/compiled"' ;;
    lld-19) program ld.lld-19 "" ;;
    libgnustep-base-dev) program gnustep-config "" ;;
    chromium-headless-shell) program chromium-headless-shell "" ;;
    npm) program npm "" ;;
    gdb) program gdb "" ;;
    llvm-19) program llvm-cov-19 ""; program llvm-profdata-19 "" ;;
    *) echo "no such package: $package" >> "$WORLD/calls"; exit 100 ;;
  esac
done
"""
)
# The version of Python and GCC that apt has; only once its lists are there.
APT_CACHE = r"""#!/bin/bash
[ -e "$WORLD/lists" ] || exit 0
read -r python gcc < "$WORLD/lists"
case "$*" in
  "policy python3") printf 'python3:\n  Installed: (none)\n  Candidate: %s.2-1\n' "$python" ;;
  "depends g++") printf 'g++\n  Depends: cpp\n  Depends: g++-%s\n' "$gcc" ;;
esac
"""
GXX = r"""#!/bin/bash
case "$*" in
  -dumpversion) echo 12 ;;
  -print-file-name=include) echo "$WORLD/gcc" ;;
  *) read -r line; line=${line%>}; [ -e "$WORLD/${line##*/}" ] ;;
esac
"""
PYTHON = (
    ALONE
    + r"""
read -r version rest < "$WORLD/archive"
case "$*" in
  *'"%d.%d"'*) echo "$version" ;;
  *"import platform"*) echo "$version.2" ;;
  *"import ensurepip"*) [ -e "$WORLD/venv" ] ;;
  *"print("*) echo "python$version-venv" ;;
  "-m venv "*)
    alone "$@"
    mkdir -p "$3/bin" && cp "$WORLD/fakes/python" "$3/bin/python" && cp "$WORLD/fakes/pip" "$3/bin/pip" ;;
  "-m pip "*) alone "${@: -2}" ;;
esac
"""
)
PIP = ALONE + 'alone "${@: -2}"\n'
SUDO = '#!/bin/bash\n[ "$1" != -n ] || exit 0\necho sudo >> "$WORLD/calls"\nexec "$@"\n'
REAL = (
    *("bash", "sh", "env", "cat", "cp", "chmod", "cut", "dirname", "flock", "grep", "head", "ls"),
    *("mkdir", "mktemp", "printf", "rm", "rmdir", "sed", "sleep", "sort", "tail", "touch", "true"),
    *("awk", "getconf", "git", "make", "uname", "basename", "realpath"),
)


class World:
    """A checkout on a machine that has nothing but fakes."""

    def __init__(self, path: Path, python: str = "3.11", gcc: str = "12", user: int = 0) -> None:
        self.path, self.checkout = path, path / "checkout"
        for folder in ("bin", "fakes", "checkout/tools"):
            (path / folder).mkdir(parents=True)
        (path / "archive").write_text(f"{python} {gcc}\n")
        (path / "unavailable").touch()
        for name in REAL:
            program = shutil.which(name)
            assert program, name
            (path / "bin" / name).symlink_to(program)
        self.fake("bin/apt-get", APT_GET)
        self.fake("bin/apt-cache", APT_CACHE)
        self.fake("bin/id", f"#!/bin/sh\necho {user}\n")
        for name, text in (("g++", GXX), ("python", PYTHON), ("pip", PIP)):
            self.fake(f"fakes/{name}", text)
        shutil.copy(ROOT / "tools" / "setup.sh", self.checkout / "tools")
        versions = self.checkout / "python" / "metal_ops"
        versions.mkdir(parents=True)
        shutil.copy(ROOT / "python" / "metal_ops" / "_version.py", versions)

    def fake(self, name: str, text: str) -> None:
        (self.path / name).write_text(text)
        (self.path / name).chmod(0o755)

    def start(self, *command: str, **environment: str) -> subprocess.Popen[str]:
        variables = {"PATH": str(self.path / "bin"), "WORLD": str(self.path), "LC_ALL": "C"}
        return subprocess.Popen(
            command,
            cwd=self.checkout,
            env=variables | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def setup(self, *words: str, **environment: str) -> tuple[int, str, str]:
        """Returns (exit code, standard output, standard error)."""
        process = self.start("tools/setup.sh", *words, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    @property
    def calls(self) -> list[str]:
        calls = self.path / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    @property
    def installed(self) -> list[set[str]]:
        """The packages of each call of `apt-get install`."""
        lists = [call.split(" install ")[1] for call in self.calls if " install " in call]
        return [{word for word in text.split() if not word.startswith("-")} for text in lists]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize(
    "words, packages",
    [
        ((), CPU),
        (("--metal",), CPU | METAL),
        (("--metal", "--metal"), CPU | METAL),  # make's message when a goal is its own set-up step
        (("--metal", "--if-possible", "--browser"), CPU | METAL | BROWSER),
        (("--metal", "--npm"), CPU | METAL | {"npm"}),
        (("--if-possible", "--browser", "--tools"), BROWSER | TOOLS),
        (("--browser",), BROWSER),
        (("--if-possible", "--browser"), BROWSER),
    ],
)
def test_one_call_asks_for_everything(world: World, words: tuple[str, ...], packages: set[str]):
    code, out, _ = world.setup(*words)
    assert code == 0 and world.installed == [packages]
    (named,) = re.findall(r"^metal_ops: installing (.*)$", out, re.M)
    assert sorted(named.split()) == sorted(packages)  # each once
    before = world.calls
    assert world.setup(*words) == (0, "", "")
    assert world.calls == before  # installed packages are not asked for again


def test_two_at_once_take_turns(world: World):
    """As under `make -j`, and when two makes run: one installs, the other finds it done."""
    processes = [world.start("tools/setup.sh", "--metal") for _ in range(3)]
    for process in processes:
        assert process.wait(60) == 0, process.communicate()
    assert world.installed == [CPU | METAL]
    assert "overlap" not in world.calls


def test_control_overlaps_are_seen(world: World):
    processes = [world.start("apt-get", "update") for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    assert "overlap" in world.calls


def test_another_package_manager_is_waited_for(world: World):
    (world.path / "locked").write_text("once\ntwice\n")
    code, out, err = world.setup()
    assert (code, err) == (0, "")
    assert out.count("waiting for another package manager") == 1
    assert world.installed == [CPU]
    assert all("DPkg::Lock::Timeout=600" in call for call in world.calls)


def test_the_wait_has_an_end(world: World):
    (world.path / "locked").write_text("for ever\n" * 100)
    code, _, err = world.setup(METAL_OPS_SETUP_PATIENCE="0")
    assert code == 1 and err.count("\n") == 1
    assert "held by process 7 (apt-get)" in err


def test_a_browser_that_cannot_be_had_stops_nothing(world: World):
    (world.path / "unavailable").write_text("chromium-headless-shell\n")
    code, _, err = world.setup("--metal", "--if-possible", "--browser")
    assert code == 0 and err.count("\n") == 1
    assert "some tests cannot be tried" in err and "chromium-headless-shell" in err
    assert (world.path / "bin" / "clang++-19").exists() and (world.path / "bin" / "g++").exists()
    code, out, err = world.setup("--find-browser")
    assert code == 1 and out == "" and err.count("\n") == 1 and "tools/setup.sh --browser" in err
    assert world.setup("--browser")[0] == 1  # where it is asked for


def test_a_package_that_cannot_be_had_ends_it(world: World):
    (world.path / "unavailable").write_text("clang-19\n")
    code, _, err = world.setup("--metal", "--if-possible", "--browser")
    assert code == 1 and err.count("\n") == 1
    assert "Unable to locate package clang-19" in err


def test_user_without_sudo_is_told_one_command(tmp_path: Path):
    world = World(tmp_path, user=1000)
    code, out, err = world.setup("--metal", "--if-possible", "--browser")
    assert code == 1 and out == "" and err.count("\n") == 1
    said = err.split("run 'sudo apt-get install -y --no-install-recommends ")[1].split("'")[0]
    assert set(said.split()) == CPU | METAL | BROWSER
    assert world.calls == []


def test_user_with_sudo(tmp_path: Path):
    world = World(tmp_path, user=1000)
    world.fake("bin/sudo", SUDO)
    assert world.setup()[0] == 0
    assert world.installed == [CPU] and world.calls.count("sudo") == 2


def test_only_packaged_python_is_too_new(tmp_path: Path):
    """Known once apt's lists are there, and nothing is installed."""
    world = World(tmp_path, python="3.99", gcc="14")
    code, out, err = world.setup("--metal")
    assert code == 1 and out == "" and err.count("\n") == 1
    assert "3.99" in err and "Python 3.11, 3.12 and" in err and "make PYTHON=" in err
    assert world.installed == []


def test_only_installed_python_is_too_new(tmp_path: Path):
    world = World(tmp_path, python="3.99", gcc="14")
    shutil.copy(world.path / "fakes" / "python", world.path / "bin" / "python3")
    for words in [(), ("--python",)]:
        code, out, err = world.setup(*words)
        assert code == 1 and out == "" and err.count("\n") == 1
        assert "this system has 3.99.2" in err
    assert world.calls == []


def pinned(requirements: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z-]+)==([\d.]+)", requirements, re.M))


@pytest.mark.parametrize(
    "python, release, metal",
    [("3.11", "2.18", True), ("3.12", "2.18", True), ("3.13", "2.21", False)],
)
def test_the_release_is_one_that_python_has_wheels_of(tmp_path: Path, python, release, metal):
    """The oldest where it can be: Debian 13 has Python 3.13, thus the newest."""
    world = World(tmp_path, python=python)
    shutil.copy(ROOT / "requirements.txt", world.checkout)
    assert world.setup()[0] == 0
    assert "python3" in world.installed[0]
    assert world.setup("--release") == (0, f"{release}\n", "")
    assert world.setup("--python") == (0, "python3\n", "")
    versions = pinned(world.setup("--requirements")[1])
    assert {versions["tensorflow"], versions["tensorflow-cpu"]} == {RELEASES[release][0]}
    assert versions["numpy"] == RELEASES[release][1] and versions["keras"]
    assert ("tensorflow-metal" in versions) == metal


def test_what_the_environment_was_made_with_counts(tmp_path: Path):
    """An older Python that comes later changes nothing."""
    world = World(tmp_path, python="3.13")
    shutil.copy(world.path / "fakes" / "python", world.path / "bin" / "python3")
    (world.checkout / ".venv/bin").mkdir(parents=True)
    shutil.copy(world.path / "fakes" / "python", world.checkout / ".venv/bin/python")
    world.fake("bin/python3.11", "#!/bin/sh\necho 3.11\n")
    assert world.setup("--release") == (0, "2.21\n", "")
    shutil.rmtree(world.checkout / ".venv")  # the control
    assert world.setup("--release") == (0, "2.18\n", "")


def test_a_copy_for_another_release(world: World):
    """The same files with the same times, removed ones go, and in there that release is the tree's own."""
    here, copy = world.checkout, world.checkout / "build/tf-2.20"
    shutil.copy(ROOT / "tools/other_release.sh", here / "tools")
    shutil.copy(ROOT / "requirements.txt", here)
    for program in ("comm", "tar", "tr", "xargs", "find", "mv"):
        (world.path / "bin" / program).symlink_to(shutil.which(program))
    (here / ".gitignore").write_text("/build/\n*.so\n*.o\n")
    (here / "old.cc").write_text("1")
    (here / "a.so").touch()
    (here / "link").symlink_to("old.cc")
    (here / "build/hostmetal/src").mkdir(parents=True)
    (here / "build/hostmetal/src/a.o").touch()
    for room in ("an", "tensorflow"):
        (here / "build/kernels" / room).mkdir(parents=True)
        (here / "build/kernels" / room / "an_op.o").touch()
    subprocess.run(["git", "init", "-q", here], check=True)

    def make_copy() -> None:
        process = world.start("tools/other_release.sh", "2.20")
        assert process.communicate(timeout=60)[1] == "" and process.returncode == 0

    make_copy()
    assert (copy / "old.cc").stat().st_mtime == (here / "old.cc").stat().st_mtime
    assert (copy / "link").is_symlink() and not (copy / "a.so").exists()
    assert (copy / "build/hostmetal/src/a.o").exists()
    assert (copy / "build/kernels/an/an_op.o").exists()
    assert not (copy / "build/kernels/tensorflow/an_op.o").exists()
    (here / "old.cc").unlink()
    (here / "new.cc").write_text("2")
    (copy / "build/mine.o").touch()
    make_copy()
    assert not (copy / "old.cc").exists() and (copy / "new.cc").read_text() == "2"
    assert (copy / "build/mine.o").exists()

    def release(folder: Path) -> str:
        command = ["tools/setup.sh", "--release"]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout

    assert release(copy) == "2.20\n" != release(here)


def test_a_copy_takes_objects_that_know_the_c_interface_alone(world: World):
    """Neither objects that include more of TensorFlow, by a header of ours, too, nor those that are not up to date."""
    here, copy = world.checkout, world.checkout / "build/tf-2.20"
    shutil.copy(ROOT / "tools/other_release.sh", here / "tools")
    for program in ("cmp", "find", "tr"):
        (world.path / "bin" / program).symlink_to(shutil.which(program))
    (here / ".gitignore").write_text("/build/\n")
    sources = {
        "plain.mm": '#include "tensorflow/c/kernels.h"\n',
        "core.h": '#include "tensorflow/core/framework/op.h"\n',
        "plain.h": "",
        "inner.mm": '#include "device/core.h"\n',
        "version.mm": "METAL_OPS_TENSORFLOW\n",
        "changed.mm": "",
        "rules.mk": "",
    }
    for tree, release in ((here, "2.18.1"), (copy, "2.20.0")):
        for name in ("tensorflow/cflags", "metal_flags/cflags", "metal_flags/compiler"):
            (tree / "build" / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / "build" / name).write_text("-O2 ")
        (tree / "build/tensorflow/cflags").write_text(
            f"-isystem {tree}/include -ffile-prefix-map={tree}=. -DX=1 -DMETAL_OPS_TENSORFLOW={release}"
        )
    objects = here / "build/device_so/device"
    for folder in (here / "device", objects):
        folder.mkdir(parents=True)
    for name, text in sources.items():
        (here / "device" / name).write_text(text)
    hour_ago = time.time() - 3600
    for path in [*here.rglob("build/**/*flags/*"), *here.rglob("build/tensorflow/*")]:
        os.utime(path, (hour_ago - 9, hour_ago - 9))
    for path in (here / "device").iterdir():
        os.utime(path, (hour_ago - 9, hour_ago - 9))
    for name in ("plain", "inner", "version", "changed"):
        header = "device/core.h" if name == "inner" else "device/plain.h"
        (objects / f"{name}.o").write_text(name)
        (objects / f"{name}.d").write_text(
            f"build/device_so/device/{name}.o: device/{name}.mm \\\n  {header}\n{header}:\n"
        )
        os.utime(objects / f"{name}.o", (hour_ago, hour_ago))
    (here / "device/changed.mm").write_text("later")
    subprocess.run(["git", "init", "-q", here], check=True)

    def take() -> set[str]:
        process = world.start("tools/other_release.sh", "2.20", "objects")
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        taken = {path.name for path in copy.rglob("*.o")}
        assert out.startswith(f"metal_ops: {len(taken)} objects")
        return taken

    flags = copy / "build/tensorflow/cflags"
    said = flags.read_text()
    flags.write_text(said.replace("-DX=1", "-DX=2"))
    assert take() == set()
    flags.write_text(said)
    assert take() == {"plain.o"}
    taken = copy / "build/device_so/device/plain.o"
    assert taken.stat().st_mtime >= flags.stat().st_mtime and taken.with_suffix(".d").exists()


# Builds all but 2.19, each with the Python that is asked for first.
MATRIX_MAKE = r"""#!/bin/bash
release=${1#TF=}
[ -z "$PYTHON$MAKEFLAGS" ] && [ $release != 2.19 ] || exit 2
[[ ${@: -1} = PYTHON=*python3.1[23] ]] || exit 3
tree=build/tf-$release && [ $release != 2.18 ] || tree=.
mkdir -p $tree/.venv/bin $tree/build && cp "$WORLD/fakes/python" $tree/.venv/bin
[ $tree = . ] || cp -r tools python requirements.txt $tree
"""
# A Python of the version in its path. One row fails.
MATRIX_PYTHON = r"""#!/bin/bash
version=3.12 && [[ $0 != *3.13* ]] || version=3.13
case "$*" in
  *'"%d.%d"'*) echo $version ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  "-m pytest "*)
    echo "$PWD $version ${@: -1}" >> "$WORLD/calls"
    case "$PWD $version" in *2.21*3.13) echo "1 failed, 2 passed, 3 errors in 0.5s" && exit 1 ;; esac
    echo "3 passed, 1 skipped in 2.5s" ;;
esac
"""


def test_the_matrix_has_a_row_a_release_and_python(world: World):
    """A missing release is a row that says so, and a row can be asked for alone."""
    shutil.copy(ROOT / "tools/test_matrix.sh", world.checkout / "tools")
    shutil.copy(ROOT / "requirements.txt", world.checkout)
    (world.path / "bin" / "tee").symlink_to(shutil.which("tee"))
    (world.path / "bin" / "make").unlink()  # a link to the real one
    world.fake("bin/make", MATRIX_MAKE)
    world.fake("fakes/python", MATRIX_PYTHON)
    for version in ("3.12", "3.13"):
        shutil.copy(world.path / "fakes/python", world.path / f"bin/python{version}")

    def matrix(*arguments: str) -> tuple[int, dict[tuple[str, str], str]]:
        process = world.start("tools/test_matrix.sh", *arguments, PYTHON="3.12", MAKEFLAGS="-k")
        out, err = process.communicate(timeout=60)
        assert err == "", err
        assert out.endswith((world.checkout / "build/test-matrix.md").read_text())
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines()]
        # Passed, failed, errors, skipped; the note.
        return process.returncode, {
            (row[0], row[1]): " ".join((*row[2:6], row[8])).strip()
            for row in rows
            if row and row[0][:2] == "2."
        }

    code, rows = matrix("2.20", "3.12", "ops or device")
    assert (code, rows) == (0, {("2.20", "3.12"): "3 0 0 1"})
    assert world.calls == [f"{world.checkout}/build/tf-2.20 3.12 ops or device"]
    code, rows = matrix("", "", "ops", "tests/c.py")
    assert code == 1 and len(rows) == len(RELEASES) * 3
    assert world.calls[-1].endswith("tf-2.21 3.13 tests/c.py")
    good, bad = "3 0 0 1", "- - - - not built: build/test-matrix/2.19-3.12.log"
    for release, (_, _, pythons) in RELEASES.items():
        assert rows[release, "3.11"] == "- - - - skipped: no such Python here"
        assert rows[release, "3.12"] == (bad if release == "2.19" else good)
        if "3.13" not in pythons:
            assert rows[release, "3.13"] == "- - - - skipped: TensorFlow has no wheels"
    assert rows["2.20", "3.13"] == good and rows["2.21", "3.13"] == "2 1 3 0"


def test_an_unknown_release_is_refused(world: World):
    shutil.copy(ROOT / "tools/other_release.sh", world.checkout / "tools")
    process = world.start("tools/other_release.sh", "2.17")
    assert process.communicate(timeout=60)[1] == (
        "metal_ops: TF=2.17 is no release of TensorFlow that this can be built for; "
        "there are 2.18, 2.19, 2.20, 2.21.\n"
    )
    assert process.returncode == 1 and not (world.checkout / "build").exists()


def test_named_python_is_taken_or_refused(world: World):
    shutil.copy(world.path / "fakes" / "python", world.path / "bin" / "python3")
    assert world.setup("--python") == (0, "python3\n", "")
    assert world.setup("--python", PYTHON="nowhere/python")[:2] == (1, "")
    assert "PYTHON=nowhere/python" in world.setup(PYTHON="nowhere/python")[2]
    named = str(world.path / "fakes" / "python")
    assert world.setup("--python", PYTHON=named) == (0, f"{named}\n", "")


def test_a_version_of_python_is_looked_for(world: World):
    """PYTHON=3.12 is that one wherever it is, though there are others that would do, or a refusal."""
    for version in ("3.11", "3.12"):
        world.fake(f"bin/python{version}", f"#!/bin/sh\necho {version}\n")
    assert world.setup("--python") == (0, "python3.11\n", "")
    assert world.setup("--python", PYTHON="3.12") == (0, "python3.12\n", "")
    (world.path / "bin/python3.12").unlink()
    installed = world.path / "pyenv/versions/3.12.1/bin/python"
    installed.parent.mkdir(parents=True)
    world.fake("pyenv/versions/3.12.1/bin/python", "#!/bin/sh\necho 3.12\n")
    root = str(world.path / "pyenv")
    named = world.setup("--python", PYTHON="3.12", PYENV_ROOT=root)
    assert named == (0, f"{installed}\n", "")
    assert world.setup("--pythons", "2.20", PYTHON="3.12", PYENV_ROOT=root)[1].splitlines() == [
        "3.13",
        f"3.12 {installed}",
        "3.11",
    ]
    code, out, err = world.setup("--python", PYTHON="3.13")
    assert (code, out) == (1, "") and "PYTHON=3.13 is none" in err


def test_python_without_venv(world: World):
    shutil.copy(world.path / "fakes" / "python", world.path / "bin" / "python3")
    assert world.setup()[0] == 0
    assert world.installed == [CPU - {"python3", "python3-venv"} | {"python3.11-venv"}]


def test_libobjc_is_that_of_the_gcc_to_come(tmp_path: Path):
    world = World(tmp_path, python="3.12", gcc="13")
    assert world.setup("--metal")[0] == 0
    assert "libobjc-13-dev" in world.installed[0]


def test_unknown_word(world: World):
    code, _, err = world.setup("--metl")
    assert code == 1 and "'--metl'" in err


# ---- make -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkout(world: World) -> World:
    """With everything that make reads."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", ":!docs/images", ":!benchmarks/results"],
        cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (world.checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, world.checkout / name)
    return world


@pytest.mark.parametrize(
    "goal, words",
    [
        ("nerf", ""),
        ("build", ""),
        ("metal", "--metal"),
        ("test", "--metal --if-possible --browser --tools"),
        ("test ARGS=tests/test_softshrink.py", ""),
        ("test-all SHARD=2/4", "--metal --if-possible --browser --tools"),
        ("test-near", "--metal"),
        ("test-ops", "--metal"),
        ("test-shaders", "--metal"),
        ("test-checks SHARD=2/4", "--metal"),
        ("bench", "--metal"),
        ("gpu-test GPU=1 OUT=out", "--metal"),
        ("wheel", "--metal"),
        ("wheel-check", "--metal"),
        ("docs", ""),
        ("docs ARGS=--measure", "--metal"),
        ("sanitize", "--metal --sanitize"),
        ("sanitize-ops", "--metal --sanitize"),
        ("fuzz", "--metal --sanitize"),
        ("bazel", "--metal --npm"),
        ("nerf test", "--metal --if-possible --browser --tools"),
    ],
)
def test_first_step_asks_for_all_that_the_goal_needs(checkout: World, goal: str, words: str):
    process = checkout.start("make", "-n", *goal.split())
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    steps = [line for line in out.splitlines() if "tools/setup.sh" in line]
    assert steps[0].split() == ["tools/setup.sh", *words.split()]
    asked = set(words.split())
    for step in steps:
        said = set(re.findall(r"--[a-z-]+", step))
        assert said <= asked | {"--python", "--requirements", "--find-browser"}, step


def test_lint_makes_the_stubs_first(checkout: World):
    """For the op library, which needs nothing of Metal."""
    process = checkout.start("make", "-n", "lint")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    library, raw, names, mypy = (
        out.index(text)
        for text in (
            "-shared build/ops/",
            "stub.py python/metal_ops/_metal_ops.so python/metal_ops/raw_ops.pyi",
            "stub.py python/metal_ops/ops python/metal_ops/ops/__init__.pyi",
            "bin/mypy",
        )
    )
    assert library < raw < mypy and names < mypy
    assert "build/device_so" not in out and "build/metal_so" not in out


def test_a_compiler_that_this_make_installs_is_asked(checkout: World):
    """Where GCC keeps Objective-C's headers is known once it is there, not when make reads its files."""
    process = checkout.start("make", "build/hostmetal/src/bindings.o")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, out + err
    assert checkout.installed == [CPU, METAL]
    (command,) = (checkout.path / "compiled").read_text().splitlines()
    assert f"-idirafter {checkout.path / 'gcc'} " in command


def test_one_pip_at_a_time(checkout: World):
    """Also when two makes run."""
    assert checkout.setup()[0] == 0
    goals = (".venv/test.stamp", ".venv/package.stamp", ".venv-docs/stamp", "browser-if-possible")
    (checkout.checkout / "build").mkdir(exist_ok=True)
    (checkout.checkout / "build" / "system-metal.stamp").touch()
    makes = [checkout.start("make", "-j8", *goals, PYTHON="python3") for _ in range(2)]
    for process in makes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
    assert "overlap" not in checkout.calls
    files = [call.split()[-1] for call in checkout.calls if call.startswith("-r ")]
    assert set(files) == {
        *("build/requirements.txt", "requirements-test.txt", "requirements-test-no-deps.txt"),
        "requirements-programs.txt",
        *("requirements-docs.txt", "requirements-browser.txt"),
    }


def test_make_says_one_sentence_and_fails(checkout: World):
    checkout.fake("bin/id", "#!/bin/sh\necho 1000\n")
    for goal in ("nerf", "test"):
        process = checkout.start("make", goal)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 2 and out == ""
        sentences = [line for line in err.splitlines() if not line.startswith("make: ***")]
        assert len(sentences) == 1 and sentences[0].startswith("metal_ops: g++ "), err


def test_what_could_not_be_tried_is_said_last(tmp_path: Path):
    """And the other tests have run, and the exit code is that of failure."""
    (tmp_path / "test_some.py").write_text(
        "import pytest\nfrom tests.browser import untried\n"
        "@pytest.fixture\ndef page(): untried('no browser')\n"
        "def test_a(page): pass\ndef test_b(page): pass\ndef test_c(): untried('no site')\n"
        "def test_d(): pass\ndef test_e(): raise ValueError('other')\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.browser", "-c", "pyproject.toml"]
    done = subprocess.run(
        [*command, tmp_path / "test_some.py"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    said = done.stdout.split("= could not be tried =")[1].split("\n====")[0].splitlines()[1:]
    assert sorted(said) == ["1 not tried: no site", "2 not tried: no browser"]
    ran = done.stdout.splitlines()[0].split()[0]
    assert sorted(ran) == sorted("EEF.F")


# ---- tools/fresh.sh -------------------------------------------------------------------------------------------------


def fresh(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"PATH": os.environ["PATH"], "HOME": "/nowhere"} | environment
    command = [ROOT / "tools" / "fresh.sh", *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True)


def test_fresh_explains_every_scenario():
    done = fresh("--help")
    assert done.returncode == 0
    known = fresh("nowhere").stderr.split("there are ")[1].split(" and all")[0].split()
    section = done.stdout.split("Scenarios")[1].split("Options:")[0]
    described = re.findall(r"^[* ] (\S+)  +\S", section, re.M)
    assert described == [*known, "all"]


@pytest.mark.parametrize(
    "arguments, says",
    [
        (("nowhere",), "unknown scenario 'nowhere'"),
        (("--nothing",), "unknown option '--nothing'"),
    ],
)
def test_fresh_refuses(arguments: tuple[str, ...], says: str):
    done = fresh(*arguments)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1


def test_fresh_needs_root_and_debootstrap(world: World):
    environment = {"PATH": str(world.path / "bin")}
    done = fresh(**environment)
    assert done.returncode == 2 and "debootstrap is missing" in done.stderr
    world.fake("bin/id", "#!/bin/sh\necho 1000\n")
    done = fresh(**environment)
    assert done.returncode == 2 and "sudo tools/fresh.sh" in done.stderr
