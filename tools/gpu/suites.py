"""The suites of the TensorFlow device and of the ops on a machine with a GPU: packs them, and runs them there.

python -m tools.gpu.suites FOLDER [PYTHON]   # here, after `make metal GPU=1`
python3 FOLDER/suites.py [--at-once=6] [WORD...]   # there

The folder has this tree, TensorFlow and the tests' packages for that Python (3.12), and clang; no network is needed
there. Each file of tests, or each with such a word in its path, runs in a process of its own; FOLDER/suites.txt has the
results of those that have ended.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUITES = ("tests/device/on_device", "tests/metal_kernels/on_device")
ALSO = ("tests/device/test_two_devices.py",)  # where there are two GPUs; it says so elsewhere
LIMIT_S = 1200  # of a file
# Libraries of the system there; all others are carried.
THEIRS = re.compile(r"(ld-linux|libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+)[.-].*so")
PLATFORMS = [f"manylinux_2_{n}_x86_64" for n in (28, 27, 17, 12, 5)] + ["manylinux2014_x86_64"]


# ---- here -----------------------------------------------------------------------------------------------------------


def requirements(roots: Iterable[str]) -> list[str]:
    """These packages and their dependencies, pinned as they are installed here."""
    from importlib import metadata

    from packaging.requirements import Requirement

    found: dict[str, str] = {}
    left = [*roots]
    while left:
        name = left.pop().lower().replace("_", "-")
        if name in found:
            continue
        package = metadata.distribution(name)
        found[name] = f"{name}=={package.version}"
        for needed in map(Requirement, package.requires or []):
            if not needed.marker or needed.marker.evaluate({"extra": ""}):
                left.append(needed.name)
    return sorted(pin for pin in found.values() if not pin.startswith("tensorflow-metal-ops"))


def libraries(files: Iterable[Path]) -> set[Path]:
    """The libraries of this system that these files need, and those of them."""
    found = set()
    for file in files:
        said = subprocess.run(["ldd", file], capture_output=True, text=True).stdout
        for path in re.findall(r"=> (/\S+)", said):
            if not THEIRS.match(Path(path).name) and "tensorflow" not in path:
                found.add(Path(path))
    return found


def pack(out: Path, root: Path, python: str) -> None:
    """Fills the folder."""
    from metal_ops.metal import toolchain

    shutil.rmtree(out, ignore_errors=True)
    (out / "lib").mkdir(parents=True)
    shutil.copy(__file__, out / "suites.py")
    package = root / "python/metal_ops"
    built = [*package.glob("*.so"), *package.glob("*.metallib")]
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
    )
    files = [root / name for name in listed.stdout.split("\0") if name and (root / name).exists()]
    with tarfile.open(out / "tree.tar", "w") as tar:
        for file in [*files, *built]:
            tar.add(file, file.relative_to(root), recursive=False)
    # clang lies beside its headers and finds them by that; a file named clang may be ccache.
    headers = toolchain.resources()
    llvm = headers.resolve().parents[2]
    for tool in ("clang", "lld"):
        (out / "llvm/bin").mkdir(parents=True, exist_ok=True)
        shutil.copy(llvm / "bin" / tool, out / "llvm/bin")
    shutil.copytree(headers / "include", out / "llvm/lib/clang" / headers.name / "include")
    shutil.copy(toolchain.libclang(), out / "llvm/lib/libclang-19.so.1")
    programs = [*built, llvm / "bin/clang", llvm / "bin/lld", Path(toolchain.libclang())]
    ours = {path.name for path in built}
    for library in sorted(libraries(programs)):
        if library.name not in ours:
            shutil.copy(library, out / "lib" / library.name)
    pins = requirements(["tensorflow-metal-ops", "pytest", "hypothesis", "libclang"])
    alone = (root / "requirements-test-no-deps.txt").read_text().splitlines()
    pins += filter(None, (line.partition("#")[0].strip() for line in alone))
    platforms = [f"--platform={name}" for name in PLATFORMS]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check"),
            *(
                "--no-deps",
                "--only-binary=:all:",
                "--implementation=cp",
                f"--dest={out / 'wheels'}",
            ),
            *(f"--python-version={python}", *platforms, *pins),
        ],
        check=True,
    )


# ---- there ----------------------------------------------------------------------------------------------------------


def python(here: Path) -> str:
    own = here / "venv/bin/python"
    return str(own) if own.exists() else sys.executable


def environment(here: Path) -> dict[str, str]:
    """The tests' environment, which has packages of its own: the installed ones there are of other releases."""
    if not (here / "tree").exists():
        with tarfile.open(here / "tree.tar") as tar:
            # Our own archive. Not extractall's argument, which Python 3.11.2 does not have.
            tar.extraction_filter = lambda member, path: member
            tar.extractall(here / "tree")
    wheels = sorted((here / "wheels").glob("*.whl"))
    if wheels and not (here / "venv").exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", here / "venv"], check=True)
        pip = [sys.executable, "-m", "pip", "--python", python(here), "install", "-q"]
        subprocess.run([*pip, "--no-index", "--no-deps", *wheels], check=True)
    llvm = here / "llvm"
    ours = {
        "PYTHONPATH": str(here / "tree/python"),
        "LD_LIBRARY_PATH": str(here / "lib"),
        "HOSTMETAL_DEVICE": "cuda:0",
        "METAL_OPS_CLANG": str(llvm / "bin/clang++"),
        "METAL_OPS_LLD": str(llvm / "bin/ld.lld"),
        "METAL_OPS_LIBCLANG": str(llvm / "lib/libclang-19.so.1"),
        "METAL_OPS_TEST_DEVICE_PROCESS": "1",
        "METAL_OPS_TEST_DEPTH": "all",
        "METAL_OPS_DEVICE_MEMORY_MB": "8192",  # several processes share a GPU
        "TF_ENABLE_ONEDNN_OPTS": "0",  # TensorFlow 2.18's ends the process on processors with AMX
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "COLUMNS": "300",  # for pytest's lines on failures
    }
    if llvm.exists():
        for link, tool in (("clang++", "clang"), ("ld.lld", "lld")):
            if not (llvm / "bin" / link).exists():
                (llvm / "bin" / link).symlink_to(tool)
    else:
        ours = {name: value for name, value in ours.items() if str(llvm) not in value}
    # The caller's settings count, except paths.
    fixed = ("PYTHONPATH", "LD_LIBRARY_PATH")
    return {**ours, **os.environ, **{name: ours[name] for name in fixed}}


def run_file(here: Path, file: Path, environment: dict[str, str]) -> str:
    """A row of the report, and the failures below it."""
    began = time.monotonic()
    command = [python(here), "-m", "pytest", "--tb=line", "-p", "no:cacheprovider", "-rfE"]
    try:
        done = subprocess.run(
            [*command, "-o", "addopts=--import-mode=importlib", "--color=no", file],
            cwd=here / "tree",
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_S,
        )
        said, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired:
        said, code = f"did not end in {LIMIT_S} s", -1
    counts = re.findall(r"=+ (.*?) in [\d.]+s.* =+", said)
    seconds = time.monotonic() - began
    row = f"{file}: {counts[-1] if counts else f'exit code {code}'}, {seconds:.0f} s"
    why = re.findall(r"^(?:FAILED|ERROR) .*", said, re.MULTILINE)
    if code not in (0, 5) and not why:
        why = said.strip().splitlines()[-5:]
    return "\n".join([row, *(f"  {line}" for line in why)])


def run(here: Path, words: list[str], at_once: int) -> Iterator[str]:
    """The rows, as files end."""
    around, tree = environment(here), here / "tree"
    files = sorted(
        path.relative_to(tree) for suite in SUITES for path in (tree / suite).glob("test_*.py")
    )
    files += (Path(name) for name in ALSO if (tree / name).exists())
    files = [file for file in files if not words or any(word in str(file) for word in words)]
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        running = [pool.submit(run_file, here, file, around) for file in files]
        for done in concurrent.futures.as_completed(running):
            yield done.result()


def main() -> int:
    there = (HERE / "tree.tar").exists()
    text, shape = __doc__, argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=text, formatter_class=shape)
    if not there:
        parser.add_argument("folder", type=Path, help="is made anew")
        parser.add_argument("python", nargs="?", default="3.12", help="3.12 by default")
        asked = parser.parse_args()
        pack(asked.folder, HERE.parents[1], asked.python)
        return 0
    parser.add_argument("--at-once", type=int, default=6, help="processes (6 by default)")
    parser.add_argument("words", nargs="*", help="of the files' paths; none for all files")
    asked = parser.parse_args()
    rows = []
    for row in run(HERE, asked.words, asked.at_once):
        rows.append(row)
        print(row, flush=True)
        (HERE / "suites.new").write_text("\n".join(rows) + "\n")
        os.replace(HERE / "suites.new", HERE / "suites.txt")
    bad = [row for row in rows if "\n" in row]
    print(f"{len(rows)} files, {len(bad)} with failures; {HERE / 'suites.txt'}")
    return 1 if bad or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
