"""The command line of `xcrun metal` and `xcrun metallib`, for Linux."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import compiler, coverage, deferred, gpu, toolchain
from .compiler import CompileError, Options
from .flat import preprocess
from .on_demand import compile_library

USAGE = """\
usage: metal [options] <file>...          .metal -> .metallib (or, with -c, -> .air)
       metal metallib [-o out] <file.air>...
       metal metallib --ahead ...         of --deferred objects, with the code of all kernels for this processor

  -o <file>             output; default: default.metallib, or <stem>.air with -c. As a file "-" is the standard input,
                        as an output the standard output
  -c                    compile only: one .air a .metal
  -I <folder>           search #include files there too
  -D <name>[=<value>]   define a macro;  -U <name>  undefine one
  -std=metal<x.y>       language version, metal3.1 by default (also macos-metal2.4 and the like)
  -ffast-math           allow reassociation and reciprocals; off by default here, on in Apple's compiler
  -fno-fast-math        the default
  -W..., -w, -Werror    warnings, as in clang
  -march=<cpu>          x86-64-v3 by default, and what a shader asks for by #pragma metal_ops wide_vectors x86-64-v4 as
                        well; native for this machine only
  --gpu=<targets>       code for NVIDIA GPUs as well: sm_80 (Ampere and later), sm_90 (Hopper), or both with a comma
  --coverage            kernels that count what runs, for the folder HOSTMETAL_COVERAGE of the run; where that is set while
                        they are compiled, they count, too
  --coverage-report=<folder>  llvm-cov's HTML, lcov and a summary of the runs that left their counts there; other
                        .metallib files that ran may follow
  -g                    code for gdb and lldb, thread by thread and without optimisation (docs/debug-a-shader.md)
  --explain             what each kernel's code is made of, whether it is vectorised and why not, and its occupancy there
  --report              registers, stack, spills and threadgroup memory of every kernel on those GPUs, by NVIDIA's ptxas
  -fmetal-enable-logging  os_log writes messages, which the host's MTLLogState gets; else its calls are left out
  -fno-shader-validation  leave out the bounds-checked kernels of METAL_DEVICE_WRAPPER_TYPE=1
  -fshader-validation-only  leave out the others
  -fshader-checks       the kernels of HOSTMETAL_CHECK alone, which look for races, divergent barriers and the like
  --deferred            with -c: what describes the kernels, and in <output>.deferred what their code is made of when a
                        program asks for it: for libraries that stay on this machine, with these files
  --on-demand           of a library of many kernels, only what describes them; --kernel=<name>, as often as one likes,
                        makes a library of these alone. The runtime asks so for sources that are compiled while it runs
  -MD                   write the included files as a make rule, too, into <output>.d or what -MF <file> says; -M
                        writes that alone. -MT <target>, -MQ <target> name what is made
  -E                    print the preprocessed text;  -P, -C, -CC, -H  as in clang
  --version

Objects are kept in METAL_OPS_CACHE (~/.cache/metal_ops), which nobody else may write to. METAL_OPS_CLANG and
METAL_OPS_LLD name other programs.

examples:
  python -m metal_ops metal -c my_op.metal -o my_op.air         does it compile? what does the compiler say?
  python -m metal_ops metal my_op.metal -o my_op.metallib       a library, for hostmetal to load
"""
# Options of Apple's compiler that change nothing here.
IGNORED = re.compile(
    r"-(O\w*|g[\w-]*|q|mmacosx-version-min=.*|miphoneos-version-min=.*|f(no-)?(preserve-invariance|record-sources.*|"
    r"cikernel|math-errno|vectorize.*|inline(-functions)?|fp-contract=(off|on|fast)|metal-math-fp32-functions=\w+)|"
    r"pipe|v|s|MP)$"
)
IGNORED_WITH_VALUE = {"-target", "-isysroot", "-sdk", "-arch", "-x", "--target"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the compiler; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        if arguments[:1] == ["metallib"]:
            return _metallib(arguments[1:])
        if arguments[:1] == ["metal"]:
            arguments = arguments[1:]
        return _metal(arguments)
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        # Writing, other than opening, does not say where: the compiler writes to a temporary folder.
        name = error.filename or tempfile.gettempdir()
        print(f"metal: error: {error.strerror}: {name!r}", file=sys.stderr)
        return 1


def _metallib(arguments: list[str]) -> int:
    out, ahead, inputs = "default.metallib", False, []
    items = iter(arguments)
    for item in items:
        if item == "-o":
            out = next(items, "")
        elif item == "--ahead":
            ahead = True
        elif item in ("-h", "--help"):
            print(USAGE, end="")
            return 0
        elif item.startswith("-") and item != "-":
            raise CompileError(f"metallib: error: unknown option '{item}'")
        else:
            inputs.append(item)
    if not inputs:
        raise CompileError("metallib: error: no input files")
    later = deferred.index(inputs)
    if ahead and later:
        objects, target = deferred.with_code(inputs, deferred.has_wide_vectors())
        _write(out, compiler.link(objects, target, later, checked=True))
    else:
        _write(out, compiler.link([_object(file) for file in inputs], later=later))
    return 0


def _write_deferred(out: str, content: bytes | None) -> None:
    """The text beside an object whose kernels have no code yet; nothing beside one whose kernels have."""
    beside = out + deferred.SUFFIX
    if content is not None:
        _write(beside, content)
    elif os.path.isfile(beside):
        os.unlink(beside)


def _metal(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if arguments else 2
    if "--version" in arguments:
        print(
            f"metal_ops metal {toolchain.VERSION} (clang {toolchain.clang_version()}, {toolchain.default_target()})"
        )
        return 0
    out, only_compile, inputs, report, folder = None, False, [], False, ""
    rule, explained = _Rule(), False
    on_demand, later, kernels = False, False, []
    only_preprocess, preprocessor = False, []
    fields: dict[str, Any] = {"defines": [], "include": [], "warnings": [], "undefines": []}
    lists = {
        "-I": "include",
        "-isystem": "include",
        "-iquote": "include",
        "-D": "defines",
        "-U": "undefines",
    }
    items = iter(arguments)
    for item in items:
        prefix = next((p for p in lists if item.startswith(p)), None)
        if item == "-o":
            out = next(items, None)
            if out is None:
                raise CompileError("metal: error: argument to '-o' is missing")
        elif item == "-c":
            only_compile = True
        elif item == "-E":
            only_preprocess = True
        elif item in ("-P", "-C", "-CC", "-H"):
            preprocessor.append(item)
        elif prefix:
            value = item[len(prefix) :] or next(items, None)
            if not value:
                raise CompileError(f"metal: error: argument to '{prefix}' is missing")
            fields[lists[prefix]].append(value)
        elif item.startswith(("-std=", "--std=")):
            fields["std"] = _std(item.split("=", 1)[1])
        elif item in (
            "-ffast-math",
            "-fno-fast-math",
            "-fmetal-math-mode=fast",
            "-fmetal-math-mode=safe",
        ):
            fields["fast_math"] = item in ("-ffast-math", "-fmetal-math-mode=fast")
        elif item.startswith("-march="):
            fields["target"] = item[7:]
        elif item == "--explain":
            explained = True
        elif item == "--report":
            report = True
        elif item.startswith("--gpu="):
            fields["gpu"] = _gpus(item[6:])
        elif item in ("-fshader-validation", "-fno-shader-validation"):
            fields["validation"] = item == "-fshader-validation"
        elif item == "-fshader-validation-only":
            fields["validation"], fields["plain"] = True, False
        elif item == "-fshader-checks":
            fields["checks"] = True
        elif item == "--on-demand":
            on_demand = True
        elif item == "--deferred":
            later = True
        elif item.startswith("--kernel="):
            kernels.append(item[9:])
        elif re.match(r"-W(no-)?(error=)?metal-", item):
            pass  # a warning that Apple's compiler alone has
        elif item.startswith("-W") or item in ("-w", "-pedantic"):
            fields["warnings"].append(item)
        elif item in ("-M", "-MM", "-MD", "-MMD"):
            rule.asked, rule.alone = True, rule.alone or not item.endswith("D")
        elif item in ("-MF", "-MT", "-MQ"):
            value = next(items, "")
            if not value:
                raise CompileError(f"metal: error: argument to '{item}' is missing")
            if item == "-MF":
                rule.file = value
            else:
                rule.targets.append(value if item == "-MT" else _quoted(value))
        elif item == "-fmetal-enable-logging":
            fields["logging"] = True
        elif item == "--coverage":
            fields["coverage"] = True
        elif item.startswith("--coverage-report="):
            folder = item.split("=", 1)[1]
        elif item == "-g":
            fields["debug"] = True
        elif item in IGNORED_WITH_VALUE:
            next(items, None)
        elif item == "-" or not item.startswith("-"):
            inputs.append(item)
        elif not IGNORED.match(item):
            raise CompileError(f"metal: error: unknown option '{item}'; 'metal --help' lists them")
    if folder:
        print(coverage.report(Path(folder), inputs), end="")
        return 0
    if not inputs:
        raise CompileError("metal: error: no input files")
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
    options = Options(**given)
    if only_preprocess:
        return _preprocess(inputs, out, preprocessor, options)
    if explained:
        from .explain import explain

        print("\n".join(explain(_name(file), options, _text(file)) for file in inputs), end="")
        return 0
    if report:
        if not options.gpu:
            options = replace(options, gpu=gpu.TARGETS)
        usages = [usage for file in inputs for usage in compiler.gpu_usage(file, options)]
        print(gpu.report(usages), end="")
        return 0
    if on_demand or kernels:
        if only_compile or len(inputs) > 1 or options.gpu or inputs[0].endswith((".air", ".o")):
            raise CompileError(
                "metal: error: --on-demand and --kernel take one source, and go with neither -c nor --gpu"
            )
        text = _text(inputs[0])
        data, said = compile_library(_name(inputs[0]), options, text, kernels)
        sys.stderr.write(said if not kernels else "")
        _write(out or "default.metallib", data)
        return 0
    if later and (not only_compile or any(file.endswith((".air", ".o", "-")) for file in inputs)):
        raise CompileError("metal: error: --deferred goes with -c, and with files")
    return _build(inputs, out, only_compile, rule, options, later)


def _preprocess(inputs: list[str], out: str | None, words: list[str], options: Options) -> int:
    flags = [
        *words,
        *options.warnings,
        *(f"-I{folder}" for folder in options.include),
        *(f"-D{define}" for define in options.language_defines()),
        *(f"-U{name}" for name in options.undefines),
    ]
    texts = []
    for file in inputs:
        text, said = preprocess(_name(file), _text(file), flags)
        sys.stderr.write(said)
        texts.append(text)
    if out is None or out == "-":
        sys.stdout.write("".join(texts))
    else:
        _write(out, "".join(texts).encode())
    return 0


def _text(file: str) -> str | None:
    """The text from the standard input instead of the file."""
    if file != "-" and not os.path.exists(file):
        raise CompileError(f"metal: error: no such file or directory: '{file}'")
    return sys.stdin.read() if file == "-" else None


def _name(file: str) -> str:
    """Its name in messages."""
    return "<stdin>" if file == "-" else file


def _gpus(names: str) -> tuple[str, ...]:
    targets = tuple(name for name in names.split(",") if name)
    for name in targets:
        if name not in gpu.TARGETS:
            raise CompileError(
                f"metal: error: invalid value '{name}' in '--gpu={names}'; expected {' or '.join(gpu.TARGETS)}, or both "
                "with a comma"
            )
    return targets


def _std(name: str) -> tuple[int, int]:
    match = re.fullmatch(r"(?:(?:macos-|ios-|osx-)?metal)(\d)\.(\d)", name)
    if not match:
        raise CompileError(
            f"metal: error: invalid value '{name}' in '-std={name}'; expected metal2.0 ... metal4.0"
        )
    version = int(match.group(1)), int(match.group(2))
    if not (1, 0) <= version <= (4, 0):
        raise CompileError(f"metal: error: -std={name}: this compiler knows Metal up to 4.0")
    return version


@dataclass
class _Rule:
    """The make rule that was asked for.

    Attributes:
      asked: Whether it was.
      alone: Whether nothing is compiled.
      file: Where it goes; None for a name made of the output's, or where it is alone the standard output.
      targets: The targets of the rule, as make reads it; none for the output.
    """

    asked: bool = False
    alone: bool = False
    file: str | None = None
    targets: list[str] = field(default_factory=list)

    def write(self, inputs: list[str], out: str, file: str, options: Options) -> None:
        sources = [source for source in inputs if not source.endswith((".air", ".o", "-"))]
        found = [name for source in sources for name in compiler.dependencies(source, options)]
        names = [_quoted(name) for name in dict.fromkeys(found)]
        made = " ".join(self.targets) or _quoted(out)
        text = f"{made}: {' '.join(names)}\n" + "".join(f"{name}:\n" for name in names)
        _write(self.file or file, text.encode())


def _quoted(name: str) -> str:
    """As make reads it."""
    return re.sub(r"([ #])", r"\\\1", name.replace("$", "$$"))


def _build(
    inputs: list[str],
    out: str | None,
    only_compile: bool,
    rule: _Rule,
    options: Options,
    later: bool,
) -> int:
    target = out or (Path(inputs[0]).stem + ".air" if only_compile else "default.metallib")
    if rule.alone:
        # Rules for the output of a compilation, as clang has it; -o is the rule's own.
        rule.write(inputs, Path(inputs[0]).stem + ".air", out or "-", options)
        return 0
    if only_compile and out and len(inputs) > 1:
        raise CompileError("metal: error: cannot specify -o when generating multiple output files")
    objects = []
    for file in inputs:
        if file.endswith((".air", ".o")):
            objects.append(_object(file))
            continue
        name = out or Path(file).stem + ".air"
        code = None
        if later and not (options.coverage or options.debug):  # which have all code at once
            data, code, said = deferred.compile_deferred(file, options)
        else:
            data, said = compiler.compile_object(_name(file), options, _text(file))
        sys.stderr.write(said)
        if only_compile:
            if name != "-":
                _write_deferred(name, code)
            _write(name, data)
        objects.append(data)
    if not only_compile:
        _write(target, compiler.link(objects, options.target))
    if rule.asked:
        stem = Path(inputs[0]).stem if target == "-" else re.sub(r"\.\w+$", "", target)
        rule.write(inputs, target, stem + ".d", options)
    return 0


def _object(file: str) -> bytes:
    return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()


def _write(out: str, data: bytes) -> None:
    """In one step: who opens the file sees the old or the new one. Where it cannot be, nothing is left."""
    if out == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    try:
        if path.exists() and not path.is_file():  # /dev/null, a pipe
            path.write_bytes(data)
            return
        # A folder of its own: at a name that can be guessed, another user may have put a link.
        with tempfile.TemporaryDirectory(prefix=".metal-", dir=path.parent) as folder:
            part = Path(folder) / "part"
            part.write_bytes(data)
            os.replace(part, path)
    except OSError as error:
        raise CompileError(f"metal: error: {error.strerror}: {out!r} was not written") from None


def add_parser(subparsers: Any) -> None:
    """Adds `metal`; all of its arguments are the compiler's."""
    # No prefix characters: arguments that start with a dash are the compiler's.
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "metal", add_help=False, prefix_chars="\0", help="Compile Metal shaders on this machine"
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    parser.set_defaults(run=lambda parsed: main(parsed.arguments))
