"""`python -m metal_ops fusion`: lists the fusion patterns, and explains their changes of a SavedModel."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

EPILOG = """\
examples:
  python -m metal_ops fusion list                            the patterns
  python -m metal_ops fusion list residual                   one of them, drawn
  python -m metal_ops fusion explain my_model                the fused ops, and the others with the reasons
  python -m metal_ops fusion explain my_model --html m.html  the graph before and after, side by side
"""


def add_parser(subparsers: Any) -> None:
    """Adds the command's parser."""
    parser = subparsers.add_parser(
        "fusion",
        help="List the fusion patterns, explain what they do to a SavedModel",
        description="Fusion of Conv2D and MatMul with the ops after them.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=lambda _: parser.print_help())
    commands = parser.add_subparsers(metavar="<command>", title="commands")

    listing = commands.add_parser(
        "list",
        help="List the patterns, or draw some of them",
        description="Lists the patterns, or draws some of them.",
    )
    listing.add_argument("names", nargs="*", help="patterns to draw; none: list all of them")
    listing.set_defaults(run=_list)

    explain = commands.add_parser(
        "explain",
        help="Say what is fused in a signature of a SavedModel, and why the rest is not",
        description="Says what is fused in a signature of a SavedModel, and why the rest is not.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    explain.add_argument("saved_model_dir", type=Path, help="what tf.saved_model.save has written")
    explain.add_argument(
        "--signature", default="serving_default", help="default: %(default)s", metavar="NAME"
    )
    explain.add_argument("--html", type=Path, metavar="FILE", help="write the graphs as a page")
    explain.add_argument("--json", type=Path, metavar="FILE", help="write all of it as JSON")
    explain.add_argument(
        "--device",
        choices=["gpu", "cpu"],
        default="gpu",
        help="gpu: as on the Metal device (default); cpu: as if fusion were on for the CPU",
    )
    explain.set_defaults(run=_explain)


def _fail(message: str) -> int:
    print(f"metal_ops fusion: {message}", file=sys.stderr)
    return 1


def _list(arguments: argparse.Namespace) -> int:
    from metal_ops import fusion

    patterns = {pattern.name: pattern for pattern in fusion.patterns()}
    if unknown := [name for name in arguments.names if name not in patterns]:
        return _fail(f"no pattern {unknown[0]!r}; expected one of {', '.join(patterns)}.")
    if arguments.names:
        for name in arguments.names:
            pattern = patterns[name]
            print(f"{name} ({pattern.kind}): {pattern.summary}\n")
            print(f"before:\n{pattern.before}\n\nafter:\n{pattern.after}\n")
        return 0
    width = max(map(len, patterns))
    for pattern in patterns.values():
        off = "" if pattern.enabled else "  (off)"
        print(f"{pattern.name:{width}}  {pattern.kind:8}  {', '.join(pattern.ops)}{off}")
    return 0


def _explain(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.saved_model_dir
    if not (folder / "saved_model.pb").exists():
        return _fail(f"{folder} is no SavedModel: it has no saved_model.pb.")
    from metal_ops import device, fusion

    if arguments.device == "gpu":
        try:
            device.load()
        except device.DeviceError as error:
            return _fail(f"{error} Or say --device cpu.")
    import tensorflow as tf

    model = tf.saved_model.load(str(folder))
    if arguments.signature not in model.signatures:
        names = ", ".join(model.signatures) or "none"
        return _fail(f"{folder} has no signature {arguments.signature!r}; it has: {names}.")
    with fusion.enabled(cpu=arguments.device == "cpu"):
        explanation = fusion.explain(model.signatures[arguments.signature])
    print(explanation)
    for path in (arguments.html, arguments.json):
        if path:
            print(f"written: {explanation.save(path)}")
    return 0
