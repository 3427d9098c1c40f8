"""`python -m tools.reference`: writes every generated file. `--check` only says which are not up to date.

What needs the Metal device is asked of a process of its own, as a loaded device stays for the life of a process.
`--measure` measures docs/errors.json, docs/device_errors.json and docs/numbers.json anew, `--measure ScaleShift` that
op of this library's alone; without it the committed figures are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported
ROOT = Path(__file__).resolve().parents[2]
ERRORS = ROOT / "docs" / "errors.json"
DEVICE_ERRORS = ROOT / "docs" / "device_errors.json"
NUMBERS = ROOT / "docs" / "numbers.json"


def ask_device(*arguments: str) -> dict[str, Any]:
    """What a process with the device loaded says."""
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


def pages() -> dict[Path, str]:
    """The text of every generated file but those that --measure writes."""
    from tools.reference import api, errors, examples, fusions, language, ops, stub, support

    docs = ROOT / "docs"
    return {
        ROOT / "python" / "metal_ops" / "raw_ops.pyi": stub.render(),
        ROOT / "python" / "metal_ops" / "ops" / "__init__.pyi": stub.render_ops(),
        docs / "api.md": api.render(),
        docs / "ops.md": ops.render(),
        docs / "support.md": support.render(ask_device("support")),
        docs / "errors.md": errors.render(
            *(json.loads(path.read_text()) for path in (ERRORS, DEVICE_ERRORS))
        ),
        docs / "fusions.md": fusions.render(),
        docs / "examples.md": examples.render(),
        docs / "metal-language.md": language.render(json.loads(NUMBERS.read_text())),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.reference", description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--measure", nargs="*", metavar="OP")
    arguments = parser.parse_args()
    if arguments.measure:
        found = ask_device("errors", *arguments.measure)
        if missing := sorted(set(arguments.measure) - set(found)):
            parser.error(f"no case in tools/reference/error_cases/ is of {', '.join(missing)}")
        figures = json.loads(ERRORS.read_text()) | found
        ERRORS.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
    elif arguments.measure is not None:
        from tools.reference import language

        NUMBERS.write_text(json.dumps(language.figures(), indent=1) + "\n")
        for path in (ERRORS, DEVICE_ERRORS):
            path.write_text(json.dumps(ask_device(path.stem), indent=1, sort_keys=True) + "\n")
    stale = []
    for path, text in pages().items():
        if not path.exists() or path.read_text() != text:
            stale.append(str(path.relative_to(ROOT)))
            if not arguments.check:
                path.write_text(text)
    if stale:
        print(("not up to date: " if arguments.check else "wrote ") + ", ".join(stale))
    return 1 if stale and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
