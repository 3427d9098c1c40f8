"""docs/public.txt: the names that a release keeps, collected from the code; docs/releases.md has the rule for changes.

`make docs-reference ARGS=--public` writes it; the meanings of file formats and environment variables are written there
by hand and kept. tests/test_public.py compares it with the code.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "public.txt"
HEAD = """\
# The public names of metal_ops, with the parameters of functions ("=": may be left out). docs/releases.md says how they
# may change. Written by `make docs-reference ARGS=--public`; meanings behind ": " are written here by hand.
"""
PYTHON = "Python: {}"
OPS = "Raw ops: metal_ops.raw_ops"
COMMANDS = "Command lines: python -m metal_ops"
FORMATS = "File formats"
ENVIRONMENT = "Environment variables"
BY_HAND = (FORMATS, ENVIRONMENT)

# Strings that a command looks for in its arguments, and that are no option for people.
NO_OPTIONS = {"objc --missing", "objc -objc"}
# Formats of files that people keep: the constant with their version.
KEPT = {
    "adapter": ("python/metal_ops/adapters.py", "_FORMAT"),
    "checkpoint": ("python/metal_ops/programs/checkpoint.py", "_FORMAT"),
    "metallib": ("hostmetal/msl/metallib_abi.h", "METALLIB_ABI_VERSION"),
    "metal archive": ("hostmetal/src/archive_file.cc", "kMagic"),
    "package": ("python/metal_ops/package/container.py", "VERSION"),
}
# Constants of that kind that are of no file that people keep, and the reason.
OTHERS = {
    ("python/metal_ops/metal/cache.py", "_MAGIC"): "the cache, which is made anew",
    ("python/metal_ops/metal/deferred.py", "FORMAT"): "a build's own files, in the cache by it",
    ("python/metal_ops/metal/seal.py", "_MAGIC"): "part of a metallib",
    ("python/metal_ops/metal/toolchain.py", "VERSION"): "printed; the cache goes by it",
    ("python/metal_ops/package/container.py", "FORMAT"): "the package's name for itself",
    ("python/metal_ops/build/flags.py", "_BUILD_VERSION"): "Mach-O's",
    ("python/metal_ops/kernel/library.py", "MAGIC"): "ELF's and Apple's",
    ("python/metal_ops/programs/reading.py", "_FORMATS"): "pictures that Pillow reads",
    ("python/metal_ops/programs/reading.py", "_HEADER_VERSIONS"): "NumPy's",
    ("hostmetal/msl/metallib_abi.h", "METALLIB_MAGIC"): "part of a metallib",
    ("device/plugin.mm", "kVersion"): "TensorFlow's release",
    ("device/kernels/diagonal_metal.mm", "kVersion"): "an op's",
}
# Variables that processes of this library set for each other, or that its own builds and tests set.
PRIVATE = {
    "HOSTMETAL_COMPILER": "the runtime's own tests",
    "METAL_OPS_DEVICE_SCRIBBLE": "the device's own tests",
    "METAL_OPS_MEMORY": "from a launcher to its workers",
    "METAL_OPS_MSL": "sanitized builds",
    "METAL_OPS_OBJC_VERBOSE": "prints commands",
    "METAL_OPS_WORKER": "from a launcher to its workers",
    "METAL_OPS_WORKER_AGAIN": "from a launcher to its workers",
}

VARIABLE = re.compile(r"(?:METAL_OPS|HOSTMETAL|METAL_DEVICE|METAL_CAPTURE|MTL|MACOS_OF)_[A-Z_]+")
VERSIONED = re.compile(r"_?(?:\w+_)?(?:FORMATS?|MAGIC|VERSIONS?)")
C_VERSIONED = re.compile(
    r"(?:constexpr\s[\w:\s]*?\b(kMagic|kFormat|kVersion)\b|#define\s+(METALLIB_(?:MAGIC|ABI_VERSION)))"
)
C_FILES = (".cc", ".mm", ".h")
SOURCES = ("python/metal_ops", "hostmetal", "kernels", "device", "graph", "ops")


def collect() -> dict[str, list[str]]:
    """The names by section, as the code has them; formats and variables without their meanings."""
    import metal_ops
    from tools.reference.api import MODULES

    sections = {PYTHON.format("metal_ops"): sorted(_python(metal_ops, metal_ops.__all__))}
    for name in sorted(MODULES):
        module = getattr(metal_ops, name)
        sections[PYTHON.format(f"metal_ops.{name}")] = sorted(_python(module, module.__all__))
    raw = metal_ops.raw_ops
    sections[OPS] = [_call(name, getattr(raw, name)) for name in sorted(dir(raw)) if name[0] != "_"]
    sections[COMMANDS] = sorted(_commands())
    sections[FORMATS] = [f"{name} {_constant(*KEPT[name])}" for name in sorted(KEPT)]
    sections[ENVIRONMENT] = sorted(variables() - PRIVATE.keys())
    return sections


def read(text: str) -> dict[str, dict[str, str]]:
    """The names of a file by section, with the meanings behind them."""
    sections: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if line.startswith("## "):
            rows = sections.setdefault(line[3:], {})
        elif line and not line.startswith("#"):
            name, _, meaning = line.partition(": ")
            rows[name] = meaning
    return sections


def write(path: Path = FILE) -> None:
    """Writes the code's names, and keeps the meanings."""
    before = read(path.read_text()) if path.exists() else {}
    text = HEAD
    for section, names in collect().items():
        text += f"\n## {section}\n"
        for name in names:
            meaning = before.get(section, {}).get(name, "") if section in BY_HAND else ""
            text += f"{name}: {meaning}\n" if section in BY_HAND else f"{name}\n"
    path.write_text(text)


# ---- Python ---------------------------------------------------------------------------------------------------------
def _python(module: Any, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        value = getattr(module, name)
        if inspect.ismodule(value):
            continue  # a section of its own
        yield _call(name, value)
        if inspect.isclass(value):
            for member in sorted(_members(value)):
                yield f"{name}.{_call(member, inspect.getattr_static(value, member))}"


def _members(class_: type) -> set[str]:
    """Public methods and properties that this library adds: those of Keras, tuples and exceptions are theirs."""
    own = [each for each in class_.__mro__ if each.__module__.startswith("metal_ops")]
    others = [each for each in class_.__mro__ if each not in own]
    kinds = (property, classmethod, staticmethod)
    return {
        name
        for each in own
        for name, value in vars(each).items()
        if name[0] != "_" and (inspect.isfunction(value) or isinstance(value, kinds))
        if not any(hasattr(other, name) for other in others)
    }


def _call(name: str, value: Any) -> str:
    """E.g. `softshrink(x, lower=)`; a property, or an exception's class, is its name."""
    from tools.reference.api import _parameters

    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if not callable(value) or (isinstance(value, type) and issubclass(value, Exception)):
        return name
    if isinstance(value, type) and inspect.isfunction(value.__init__):
        parameters = _parameters(value)
    else:
        parameters = list(inspect.signature(value).parameters.values())
    star = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    words, keyword_only = [], False
    for each in parameters:
        if each.name in ("self", "cls"):
            continue
        keyword_only = keyword_only or each.kind is inspect.Parameter.VAR_POSITIONAL
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not keyword_only:
            words.append("*")
            keyword_only = True
        optional = each.default is not inspect.Parameter.empty
        words.append(f"{star.get(each.kind, '')}{each.name}{'=' * optional}")
    return f"{name}({', '.join(words)})"


# ---- command lines --------------------------------------------------------------------------------------------------
def _commands() -> Iterator[str]:
    from metal_ops import cli

    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    yield from (f"script {name}" for name in scripts)
    # Their arguments go to a compiler; those that they look for themselves are strings of these files.
    compilers = {"metal": "metal/cli.py", "objc": "build/objc.py"}
    for command in cli.COMMANDS:
        if command in compilers:
            yield command
            text = (ROOT / "python/metal_ops" / compilers[command]).read_text()
            yield from {f"{command} {option}" for option in dashes(text)} - NO_OPTIONS
        else:
            parser = cli.make_parser(command)
            yield from _of_parser(command, _subparsers(parser)[command])


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _of_parser(command: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield command
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
            continue
        for option in action.option_strings or [f"<{action.dest}>"]:
            yield f"{command} {option}"
    for name, below in _subparsers(parser).items():
        yield from _of_parser(f"{command} {name}", below)


def dashes(text: str) -> set[str]:
    """The options that a compiler's command compares its arguments with: `-c`, `--gpu=`, and no pattern of several."""
    return {
        node.value
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef)
        for test in ast.walk(function)
        if isinstance(test, ast.Compare | ast.Dict)
        or (isinstance(test, ast.Call) and ast.unparse(test.func) == "item.startswith")
        for node in ast.walk(test)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"--?[a-zA-Z][\w-]*=?", node.value) and node.value not in ("-h", "--help")
    }


# ---- formats and variables ------------------------------------------------------------------------------------------
def _texts() -> Iterator[tuple[str, str]]:
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", *C_FILES) and path.is_file():
                real = path.resolve().relative_to(ROOT)  # include/ of the package is a link
                yield str(real), path.read_text(errors="replace")


def variables() -> set[str]:
    """The environment variables that the sources name in a string of its own: `getenv("METAL_OPS_SIMD")`."""
    found: set[str] = set()
    for name, text in _texts():
        if name.endswith(".py"):
            nodes = ast.walk(ast.parse(text))
            words = {node.value for node in nodes if isinstance(node, ast.Constant)}
        else:
            lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
            words = set(re.findall(rf'"({VARIABLE.pattern})"', "\n".join(lines)))
        found |= {word for word in words if isinstance(word, str) and VARIABLE.fullmatch(word)}
    return found


def versions() -> set[tuple[str, str]]:
    """(file, constant) of all that look like the version of a format."""
    found = set()
    for name, text in _texts():
        if name.endswith(".py"):
            for node in ast.parse(text).body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    if VERSIONED.fullmatch(node.targets[0].id):
                        found.add((name, node.targets[0].id))
        else:
            found |= {(name, one or other) for one, other in C_VERSIONED.findall(text)}
    return found


def _constant(path: str, name: str) -> str:
    text = (ROOT / path).read_text()
    found = re.search(rf'\b{name}\b(?: =|) (?:"([^"]*)"|(\d+))', text)
    if not found:
        raise ValueError(f"{path} has no constant {name}.")
    return (found[1] or found[2]).split()[-1]
