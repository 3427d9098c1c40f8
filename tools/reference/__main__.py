"""`python -m tools.reference`: writes the generated pages into docs/, where git ignores them.

Records (tools/reference/records.py) come first: `--dtypes` asks which op has kernels of which dtypes; `--measure`
measures all errors as well, `--measure ScaleShift` those of that op of this library's alone; `--public` collects the
public names (tools/reference/public.py). Facts that need the Metal
device are asked of a process of its own, as a loaded device stays for the life of a process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported
from tools.reference import records  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
# The table that the repository keeps, written with the records.
SMALL_TABLE = records.DOCS / "dtypes.md"


def ask_device(*arguments: str) -> dict[str, Any]:
    """The output of a process with the device loaded."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment.pop("METAL_OPS_DEVICE", None)  # the process loads it itself
    done = subprocess.run(
        [sys.executable, "-m", "tools.reference.device_facts", *arguments],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


# The generated pages: the module whose `render` writes each, and the records that it reads. `git ls-files` has none of
# them, .gitignore all.
PAGES: dict[str, tuple[str, tuple[Path, ...]]] = {
    "api.md": ("api", ()),
    "ops.md": ("ops", ()),
    "support.md": ("support", (records.DTYPES,)),
    "errors.md": ("errors", (records.ERRORS, records.DEVICE_ERRORS)),
    "fusions.md": ("fusions", ()),
    "examples.md": ("examples", ()),
    "metal-language.md": ("language", (records.NUMBERS,)),
}


def render(page: str) -> str:
    """The text of a generated page."""
    module, read = PAGES[page]
    text: str = importlib.import_module(f"tools.reference.{module}").render(
        *(records.read(path) for path in read)
    )
    return text


def write(folder: Path) -> list[str]:
    """Writes the generated pages that are not there as they should be, and returns their names."""
    written = []
    for name in PAGES:
        path, text = folder / name, render(name)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            written.append(name)
    return written


def ask_for_dtypes() -> None:
    """Writes their record, and the small table."""
    from tools.reference import support

    records.write(records.DTYPES, ask_device("dtypes"))
    SMALL_TABLE.write_text(support.small(records.read(records.DTYPES)))


def measure(ops: list[str]) -> None:
    """Writes the records of errors, only those of some ops if any are named.

    Raises:
      ValueError: There is no case of such an op. Nothing is written then.
    """
    if ops:
        found = ask_device("errors", *ops)
        if missing := sorted(set(ops) - set(found)):
            raise ValueError(f"no case in tools/reference/error_cases/ is of {', '.join(missing)}")
        records.write(records.ERRORS, records.read(records.ERRORS) | found)
    else:
        from tools.reference import language

        records.write(records.NUMBERS, language.figures())
        for path in (records.ERRORS, records.DEVICE_ERRORS):
            records.write(path, ask_device(path.stem))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description=__doc__)
    parser.add_argument("--measure", nargs="*", metavar="OP")
    parser.add_argument("--dtypes", action="store_true")
    parser.add_argument("--public", action="store_true")
    arguments = parser.parse_args()
    if arguments.measure is not None:
        try:
            measure(arguments.measure)
        except ValueError as error:
            parser.error(str(error))
    if arguments.dtypes or arguments.measure is not None:
        ask_for_dtypes()
    if arguments.public:
        from tools.reference import public

        public.write()
    if written := write(records.DOCS):
        print("wrote " + ", ".join(f"docs/{name}" for name in written))
    return 0


if __name__ == "__main__":
    sys.exit(main())
