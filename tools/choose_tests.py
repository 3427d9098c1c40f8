#!/usr/bin/env python3
"""Says which test files a run is to name: `make test-near`, `make test ARGS=<op>` and others that take a part ask this.

tools/choose_tests.py near BASE          of the files that differ from where BASE was left, by tools/mutation/rooms.py
tools/choose_tests.py op NAME            of an op family: a folder of kernels/
tools/choose_tests.py files EXPRESSION   those with tests that pytest's `-m EXPRESSION` takes
tools/choose_tests.py needs WHAT ARGS    ends well where the tests of pytest's arguments ARGS want WHAT: metal, browser;
                                         `--near BASE` in place of ARGS names those of `near`
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests import suites  # noqa: E402
from tools.mutation import rooms  # noqa: E402

# Words in the text of a test file that needs more than the CPU's op library.
WORDS = {
    "browser": re.compile(r"tests\.browser|\bsite\b"),
    "metal": re.compile(
        r"metal_ops\.metal\b|metal_ops import metal\b|METAL_OPS_DEVICE|metal_ops\.device|"
        r"\.metallib|metal_kernels\b|libhostmetal|libmetal_device|MetalLibrary|metal_kernel"
    ),
}
ALONE = {"ops", "house"}  # files with no other marker may do with the CPU's op library


def git(*arguments: str) -> list[str]:
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"metal_ops: git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def changed(base: str) -> list[str]:
    """Files that differ from the commit at which this branch left `base`, new ones included."""
    (left,) = git("merge-base", base, "HEAD")
    new = git("ls-files", "--others", "--exclude-standard")
    return sorted({*git("diff", "--name-only", left), *new})


def near(paths: list[str]) -> list[str]:
    """Test files that a change of these files can break, nearest first; a removed file breaks those that named it."""
    dependents = rooms.dependents(ROOT)
    found = [test for path in paths for test in rooms.near(path, dependents.get(path, set()))]
    return [test for test in dict.fromkeys(found) if (ROOT / test).exists()]


def of_op(name: str) -> list[str]:
    if name not in rooms.FAMILIES:
        sys.exit(f"metal_ops: {name!r} is no folder of kernels/ with an op")
    return list(dict.fromkeys(rooms.FAMILIES[name]))


def needs(what: str, arguments: list[str]) -> bool:
    """Whether a test file among pytest's arguments wants it; where none is named, all tests run."""
    if arguments[:1] == ["--near"]:
        return any(wants(what, ROOT / file) for file in near(changed(arguments[1])))
    words = [word.split("::")[0] for word in arguments]
    named = [ROOT / word for word in words if (ROOT / word).exists()]
    named += [ROOT / file for word in words if word in rooms.FAMILIES for file in of_op(word)]
    files = [
        file for path in named for file in ([path] if path.is_file() else path.rglob("test_*.py"))
    ]
    return not files or any(wants(what, file) for file in files)


def wants(what: str, file: Path) -> bool:
    of_file, of_tests = suites.declared(file)
    if what == "metal" and not of_file & ALONE:
        return True
    return bool(WORDS[what].search(file.read_text()))


def main() -> None:
    command, *words = sys.argv[1:] or [""]
    if command == "near" and len(words) == 1:
        paths = changed(words[0])
        tests = near(paths)
        print(
            f"metal_ops: {len(paths)} files changed, {len(tests)} test files are near",
            file=sys.stderr,
        )
        print(*tests)
    elif command == "op" and len(words) == 1:
        print(*of_op(words[0]))
    elif command == "files" and len(words) == 1:
        print(*(path.relative_to(ROOT) for path in suites.files(words[0])))
    elif command == "needs" and words and words[0] in WORDS:
        sys.exit(not needs(words[0], words[1:]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
