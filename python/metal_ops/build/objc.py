"""`python -m metal_ops objc`: clang for hosts in C, C++, Objective-C and Objective-C++ that use Metal.

The arguments are clang's. What a Mac's clang knows by itself is added: where the headers lie, which runtime, blocks,
what to link; what only a Mac's knows is translated (`-framework Metal`) or left out (`-mmacosx-version-min`).
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metal_ops.build import assembly, flags
from metal_ops.build.flags import MissingToolError

USAGE = """\
usage: objc [clang's options] <file>...     compiles, and links without -c
       objc --link <file.o>... -o <program>  links alone

C, C++, Objective-C and Objective-C++ (.c, .cc, .cpp, .cxx, .m, .mm, .M, or -x) with Metal, Foundation and dispatch;
assembly (.s, .S), of a Mac as well, whose sections and names are translated.

  -framework <name>   Metal, Foundation, CoreFoundation; CoreGraphics, MetalKit and QuartzCore, which a Mac's programs
                      name for Metal's sake, are empty
  METAL_OPS_CXX       names another clang++
  METAL_OPS_OBJC_VERBOSE=1 prints every command

-fobjc-arc counts references; without it retain and release are the source's.

-dynamiclib, -bundle and -install_name make what a Linux linker calls a shared library.

examples:
  python -m metal_ops objc -c host.m -o host.o
  python -m metal_ops objc --link host.o -o host
  python -m metal_ops objc -O2 -framework Metal main.m engine.mm -o host
"""

LANGUAGES = {
    ".c": "c",
    ".m": "objective-c",
    ".mm": "objective-c++",
    ".M": "objective-c++",
    ".cc": "c++",
    ".cpp": "c++",
    ".cxx": "c++",
    ".c++": "c++",
    ".C": "c++",
    ".s": "assembler",
    ".S": "assembler-with-cpp",
}
# Metal.framework and Foundation.framework are in the two libraries that every host is linked with.
FRAMEWORKS = ("Metal", "Foundation", "CoreFoundation")
# Named on a Mac so that MTLCreateSystemDefaultDevice has a device, and by metal-cpp's instructions.
EMPTY_FRAMEWORKS = ("CoreGraphics", "MetalKit", "QuartzCore")

COMPILE_ONLY = {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"}
_WITH_VALUE = set(
    "-o -I -D -U -L -l -F -isystem -idirafter -iquote -include -imacros -MF -MT -MQ -MJ -Xclang -Xlinker "
    "-Xpreprocessor -Xassembler -mllvm -T -u -z -e -iprefix -iwithprefix --param -ivfsoverlay".split()
)
_LINK_ONLY = re.compile(r"-l.|-L.|-Wl,|-shared$|-static$|-rdynamic$|-pie$|-no-pie$|-fuse-ld=")
# Options of Apple's clang that change nothing here.
_IGNORED = re.compile(
    r"-(mmacosx-version-min=.*|mmacos-version-min=.*|miphoneos-version-min=.*|f(no-)?(cxx-)?modules|fmodules-.*|"
    r"fimplicit-module-maps|stdlib=libc\+\+|(Wl,)?-?(dead_strip|headerpad_max_install_names|ObjC|flat_namespace)|"
    r"Wl,-undefined,(dynamic_lookup|suppress)|fapplication-extension|fobjc-runtime=macosx.*)$"
)
_STRICT = re.compile(r"-std=(c|iso9899:)\d\w+$|-ansi$")
_IGNORED_WITH_VALUE = set(
    "-arch -isysroot -F -iframework -undefined -current_version -compatibility_version -bundle_loader".split()
)


class ArgumentError(ValueError):
    """The command line asks for what is not here. The message says what to do."""


def main(argv: Sequence[str]) -> int:
    """Runs the compiler; returns its exit code, or 2 where it cannot be run."""
    arguments = list(argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if arguments else 2
    try:
        if flags.MACOS:
            command = [*flags.compiler()[:-1], "clang", *(a for a in arguments if a != "--link")]
            return subprocess.run(command, check=False).returncode
        return _Driver(arguments).run()
    except (ArgumentError, MissingToolError) as error:
        print(f"metal_ops objc: {error}", file=sys.stderr)
        return 2


class _Driver:
    """One command line, taken apart."""

    def __init__(self, arguments: list[str]):
        self.inputs: list[tuple[int, str, str]] = []  # (place in words, file, language or "")
        self.words: list[str] = []
        self.frameworks = False
        self.output: str | None = None
        self.link_only = False
        language = ""
        items = iter(_framework_words(arguments))
        for item in items:
            if item == "--link":
                self.link_only = True
            elif item == "-framework" or item == "-weak_framework":
                self._framework(next(items, ""))
            elif item == "-x" or (item.startswith("-x") and len(item) > 2):
                language = item[2:] or next(items, "")
                language = "" if language == "none" else language
            elif item == "-o" or (item.startswith("-o") and not item.startswith("-objc")):
                self.output = item[2:] or next(items, "")
            elif item in _IGNORED_WITH_VALUE:
                next(items, None)
            elif item == "-target" or item.startswith("--target="):
                target = next(items, "") if item == "-target" else item.split("=", 1)[1]
                if "apple" not in target:
                    self.words.append(f"--target={target}")
            elif item in ("-dynamiclib", "-bundle"):
                self.words.append("-shared")
            elif item == "-install_name" or item.startswith("-Wl,-install_name,"):
                name = next(items, "") if item == "-install_name" else item.split(",", 2)[2]
                self.words.append(f"-Wl,-soname,{os.path.basename(name)}")
            elif item in _WITH_VALUE:
                self.words += [item, next(items, "")]
            elif item == "-" or not item.startswith(("-", "@")):
                suffix = Path(item).suffix
                self.inputs.append((len(self.words), item, language or LANGUAGES.get(suffix, "")))
                self.words.append(item)
            elif not _IGNORED.match(item):
                self.words.append(_rpath(item))
        self.compile_only = any(word in COMPILE_ONLY for word in self.words)
        if self.link_only and self.compile_only:
            raise ArgumentError("--link and -c exclude each other.")

    def _framework(self, name: str) -> None:
        if name in FRAMEWORKS:
            self.frameworks = True
        elif name not in EMPTY_FRAMEWORKS:
            raise ArgumentError(
                f"there is no framework {name or '(no name)'} on Linux; there are "
                f"{', '.join((*FRAMEWORKS, *EMPTY_FRAMEWORKS))}."
            )

    def run(self) -> int:
        compiler = [*flags.compiler(), "--driver-mode=gcc"]
        sources = [(at, file, language) for at, file, language in self.inputs if language]
        if not self.inputs and not any(word.startswith("@") for word in self.words):
            # --version, -print-..., -###: clang's to answer.
            return _call([*compiler, *self.words, *self._output()])
        if not (flags.INCLUDE / "hostmetal" / "Metal" / "Metal.h").exists():
            raise MissingToolError(f"the headers of Metal are missing; {flags.INSTALL_METAL}.")
        if self.compile_only:
            if self.output and len(sources) > 1:
                raise ArgumentError(
                    f"-o {self.output} is one file, and there are {len(sources)} sources."
                )
            codes = [self._compile(compiler, s, self._output(), False) for s in sources]
            if not sources:
                raise ArgumentError(
                    "no source to compile; sources end in " + ", ".join(LANGUAGES) + "."
                )
            return max(codes)
        if self.link_only and sources:
            raise ArgumentError(f"--link takes what is compiled, and {sources[0][1]} is a source.")
        flags.require_runtime()
        with tempfile.TemporaryDirectory(prefix="metal_ops_objc_") as scratch:
            words = list(self.words)
            for number, source in enumerate(sources):
                words[source[0]] = str(Path(scratch) / f"{number}.o")
                code = self._compile(compiler, source, ["-c", "-o", words[source[0]]], True)
                if code:
                    return code
            needed = self.frameworks or self.link_only or any("objective" in s[2] for s in sources)
            return _call([*compiler, *words, *self._output(), *_link_flags(needed)])

    def _output(self) -> list[str]:
        return [] if self.output is None else ["-o", self.output]

    def _compile(
        self, compiler: list[str], source: tuple[int, str, str], output: list[str], links: bool
    ) -> int:
        at, file, language = source
        others = {place for place, _, _ in self.inputs}
        words = [
            word
            for place, word in enumerate(self.words)
            if place not in others and not (links and _LINK_ONLY.match(word))
        ]
        if language.startswith("assembler"):
            return _assemble(compiler, file, language, words, output or _object(words, file))
        objective_c = language.startswith("objective-c")
        # A Mac's objects may all become part of a library.
        own = ["-fPIC", *(flags.objc_flags() if objective_c else []), *flags.host_flags()]
        # -std=c11 hides from glibc's headers what is beyond C, from a Mac's it hides nothing.
        if language == "objective-c" and any(_STRICT.match(word) for word in words):
            own.append("-D_DEFAULT_SOURCE=")
        quiet = ["-Wno-unused-command-line-argument"] if links else []
        return _call([*compiler, *own, *quiet, *words, *output, "-x", language, file])


def _object(words: list[str], file: str) -> list[str]:
    """-o for what `file` is assembled to, which clang cannot know of its standard input."""
    return ["-o", f"{Path(file).stem}.o"] if "-c" in words else []


def _assemble(
    compiler: list[str], file: str, language: str, words: list[str], output: list[str]
) -> int:
    """A Mac's sections and names become ELF's; a message has the file's name and line."""
    command = [*compiler, "-Wno-unused-command-line-argument", "-fPIC", *words, *output]
    command += ["-x", language]
    try:
        text = None if file == "-" else assembly.translated(Path(file).read_text("latin-1"))
    except OSError:
        text = None  # clang says that it is not there.
    if text is None:
        return _call([*command, file])
    folder = os.path.dirname(file) or "."
    command += ["-iquote", folder, "-"] if language == "assembler-with-cpp" else ["-"]
    return _call(command, f'# 1 "{file}"\n{text}')


def _framework_words(arguments: list[str]) -> list[str]:
    """-Wl,-framework,X and -Xlinker -framework -Xlinker X as -framework X."""
    out: list[str] = []
    for item in arguments:
        if item.startswith(("-Wl,-framework,", "-Wl,-weak_framework,")):
            _, word, name, *rest = item.split(",")
            out += [word, name]
            if rest:
                out += _framework_words(["-Wl," + ",".join(rest)])
        elif (
            out[-3:-1] == ["-Xlinker", "-framework"] and out[-1] == "-Xlinker"
        ):  # ... -Xlinker <name>
            out[-3:] = ["-framework", item]
        else:
            out.append(item)
    return out


def _rpath(word: str) -> str:
    """A Mac's names for the folder of the program and of the library, in those of ELF."""
    return re.sub(r"@(executable_path|loader_path)", "$ORIGIN", word) if "rpath" in word else word


def _link_flags(needed: bool) -> list[str]:
    """What a host links; a program in plain C that names no framework is tied to nothing that it does not use."""
    metal = flags.metal_link_flags()
    # Which language an object was cannot be seen: C++'s library is there for whom it concerns.
    scope, end = ["-Wl,--push-state,--as-needed"], ["-lstdc++", "-lm", "-Wl,--pop-state"]
    return [*metal, *scope, *end] if needed else [*scope, *metal, *end]


def _call(command: Sequence[str], text: str | None = None) -> int:
    """Runs it, with `text` on its standard input."""
    if os.environ.get("METAL_OPS_OBJC_VERBOSE"):
        print(" ".join(command), file=sys.stderr)
    try:
        given = None if text is None else text.encode("latin-1")
        return subprocess.run(command, check=False, input=given).returncode
    except FileNotFoundError:
        raise MissingToolError(
            f"{command[0]} was not found; run 'sudo apt-get install {flags.APT_PACKAGES}'."
        ) from None


def add_parser(subparsers: Any) -> None:
    """Adds `objc`; all of its arguments are the compiler's."""
    # No prefix characters: what starts with a dash is the compiler's to understand.
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "objc", add_help=False, prefix_chars="\0", help="Compile and link hosts that use Metal"
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    parser.set_defaults(run=lambda parsed: main(parsed.arguments))
