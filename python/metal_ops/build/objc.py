"""`python -m metal_ops objc`: clang for hosts in C, C++, Objective-C and Objective-C++ that use Metal.

The arguments are clang's. A Mac's clang's own settings are added: where the headers lie, which runtime, blocks, the
libraries to link; options that only a Mac's clang has are translated (`-framework Metal`) or left out
(`-mmacosx-version-min`).
"""

from __future__ import annotations

import argparse
import itertools
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

  -framework <name>   Metal, Foundation, CoreFoundation, IOKit, MetalPerformanceShaders; CoreGraphics, MetalKit and
                      QuartzCore, which a Mac's programs name for Metal's sake, are empty
  -sectcreate <segment> <section> <file>  puts a file into the program, where getsectiondata finds it
  -ObjC, -all_load, -force_load <library>  what of static libraries is linked though nothing names it
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
# These are in the two libraries that every host is linked with.
FRAMEWORKS = ("Metal", "Foundation", "CoreFoundation", "IOKit", "MetalPerformanceShaders")
# Named on a Mac so that MTLCreateSystemDefaultDevice has a device, and by metal-cpp's instructions.
EMPTY_FRAMEWORKS = ("CoreGraphics", "MetalKit", "QuartzCore")

# Others that programs look for, and may do without; not OpenCL and OpenGL, which Linux has too.
MISSING_FRAMEWORKS = (
    "Accelerate AppKit ApplicationServices ARKit AudioToolbox AVFoundation Carbon CFNetwork Cocoa CoreAudio "
    "CoreBluetooth CoreData CoreImage CoreLocation CoreMedia CoreML CoreMotion CoreServices CoreText CoreVideo "
    "DiskArbitration GameController GLKit ImageIO IOSurface JavaScriptCore MetalFX MetalPerformanceShadersGraph "
    "MLCompute ModelIO NaturalLanguage Quartz SceneKit ScreenCaptureKit Security SpriteKit SystemConfiguration UIKit "
    "UniformTypeIdentifiers vecLib VideoToolbox Vision WebKit"
).split()

THERE_ARE = f"there are {', '.join(FRAMEWORKS)}, and parts of {', '.join(EMPTY_FRAMEWORKS)}"

COMPILE_ONLY = {"-c", "-S", "-E", "-M", "-MM", "-fsyntax-only"}
_WITH_VALUE = set(
    "-o -I -D -U -L -l -F -isystem -idirafter -iquote -include -imacros -MF -MT -MQ -MJ -Xclang -Xlinker "
    "-Xpreprocessor -Xassembler -mllvm -T -u -z -e -iprefix -iwithprefix --param -ivfsoverlay -include-pch "
    "-dependency-file -serialize-diagnostics --serialize-diagnostics --sysroot -iwithsysroot -isystem-after "
    "-cxx-isystem -stdlib++-isystem -working-directory".split()
)
_LINK_ONLY = re.compile(r"-l.|-L.|-Wl,|-shared$|-static$|-rdynamic$|-pie$|-no-pie$|-fuse-ld=")
# Options of Apple's clang that change nothing here.
_IGNORED = re.compile(
    r"-(mmacosx-version-min=.*|mmacos-version-min=.*|miphoneos-version-min=.*|f(no-)?(cxx-)?modules|fmodules-.*|"
    r"fimplicit-module-maps|stdlib=libc\+\+|(Wl,)?-?(dead_strip|headerpad_max_install_names|flat_namespace)|"
    r"Wl,-undefined,(dynamic_lookup|suppress)|fapplication-extension|fobjc-runtime=macosx.*)$"
)
# Words of the linker that are understood here, by the number of their values.
_OF_LINKER = {
    "-framework": 1,
    "-weak_framework": 1,
    "-sectcreate": 3,
    "-force_load": 1,
    "-all_load": 0,
    "-ObjC": 0,
}
_OURS = re.compile(rf"-Wl,(.*,)?({'|'.join(_OF_LINKER)})(,|$)")
_STRICT = re.compile(r"-std=(c|iso9899:)\d\w+$|-ansi$")
_IGNORED_WITH_VALUE = set(
    "-arch -isysroot -F -iframework -undefined -current_version -compatibility_version -bundle_loader".split()
)


class ArgumentError(ValueError):
    """The command line asks for a feature that is not here. The message names the remedy."""


def main(argv: Sequence[str]) -> int:
    """Runs the compiler; returns its exit code, or 2 where it cannot be run."""
    arguments = list(argv)
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0 if arguments else 2
    try:
        if arguments[0] == "--missing":  # of the drivers for CMake
            print(_missing_header(arguments[1]), end="", file=sys.stderr)
            return 0
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
        self.sections: list[tuple[str, str, str]] = []  # (segment, section, file)
        self.whole = ""  # -ObjC or -all_load: static libraries are linked whole
        self.output: str | None = None
        self.link_only = False
        language = ""
        items = iter(_linker_words(arguments))
        for item in items:
            if item == "--link":
                self.link_only = True
            elif item == "-framework" or item == "-weak_framework":
                self._framework(next(items, ""))
            elif item == "-sectcreate":
                self.sections.append((next(items, ""), next(items, ""), next(items, "")))
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
            elif item in ("-ObjC", "-all_load"):
                self.whole = "-all_load" if self.whole == "-all_load" else item
            elif item == "-force_load":
                self.words.append(_whole(next(items, "")))
            elif item == "-rpath":
                self.words.append(_rpath(f"-Wl,-rpath,{next(items, '')}"))
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
                f"there is no framework {name or '(no name)'} on Linux; {THERE_ARE}."
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
            for section in self.sections:
                words.append(self._section(compiler, section, Path(scratch)))
            for at, file, _ in self.inputs if self.whole else ():
                if file.endswith(".a") and self.whole == "-all_load":
                    words[at] = _whole(file)
                elif file.endswith(".a"):
                    words[at] = ",".join(
                        ["-Wl", *_objective_c(file, Path(scratch) / str(at)), file]
                    )
            needed = self.frameworks or self.link_only or any("objective" in s[2] for s in sources)
            return _call([*compiler, *words, *self._output(), *_link_flags(needed)])

    def _section(self, compiler: list[str], section: tuple[str, str, str], scratch: Path) -> str:
        """An object whose section of that name is the file."""
        segment, name, file = section
        if not file or not os.path.isfile(file):
            raise ArgumentError(
                f"-sectcreate {segment} {name} {file}: expected a segment, a section and a file, and there is "
                f"no file {file or '(no name)'}."
            )
        rights = "aR" if segment == "__TEXT" else "awR"  # R: nothing names it
        path = os.path.abspath(file).replace("\\", "\\\\").replace('"', '\\"')
        made = str(scratch / f"section{self.sections.index(section)}.o")
        text = f'.section "{segment},{name}","{rights}",%progbits\n.p2align 4\n.incbin "{path}"\n'
        command = [*compiler, "-c", "-x", "assembler", "-", "-o", made]
        if _call(command, text + assembly.NO_CODE_ON_THE_STACK):
            raise ArgumentError(
                f"-sectcreate {segment} {name} {file}: no section can be made of it."
            )
        return made

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
        # -std=c11 hides extensions of glibc's headers, and none of a Mac's.
        if language == "objective-c" and any(_STRICT.match(word) for word in words):
            own.append("-D_DEFAULT_SOURCE=")
        quiet = ["-Wno-unused-command-line-argument"] if links else []
        # Link-time optimisation joins all files before their classes are known, and lowers no reference counting.
        last = (
            ["-fno-lto"] if objective_c and any(word.startswith("-flto") for word in words) else []
        )
        command = [*compiler, *own, *quiet, *words, *last, *output, "-x", language, file]
        if code := _call(command):
            print(_missing_header(_not_found(command)), end="", file=sys.stderr)
        return code


def _whole(archive: str) -> str:
    return f"-Wl,--whole-archive,{archive},--no-whole-archive"


def _objective_c(archive: str, folder: Path) -> list[str]:
    """The members of a static library with classes or categories, which -ObjC links though nothing names them.

    Raises:
      ArgumentError: They cannot be read.
    """
    folder.mkdir()
    try:
        found = subprocess.run(["nm", "-A", archive], capture_output=True, text=True, check=True)
        users = {
            line for line in found.stdout.splitlines() if line.endswith(" U __objc_exec_class")
        }
        members = sorted({line[len(archive) + 1 :].split(":")[0] for line in users})
        if members:
            words = ["ar", "x", "--output", str(folder), archive, *members]
            subprocess.run(words, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = str(getattr(error, "stderr", error)).strip()
        raise ArgumentError(f"-ObjC: the members of {archive} cannot be read: {said}") from None
    return [str(folder / member) for member in members]


def _object(words: list[str], file: str) -> list[str]:
    """-o with the assembler's output for `file`, which clang cannot know of its standard input."""
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


def _linker_words(arguments: list[str]) -> list[str]:
    """-framework X and -sectcreate A B F by themselves, which may be the linker's, by -Wl, or -Xlinker, too."""
    out: list[str] = []
    items = iter(arguments)
    given: list[str] = []  # by -Xlinker, one after the other
    for item in items:
        if item == "-Xlinker":
            given.append(next(items, ""))
            continue
        out += _of_linker(given)
        given = []
        out += _of_linker(item.split(",")[1:]) if _OURS.match(item) else [item]
    return out + _of_linker(given)


def _of_linker(words: list[str]) -> list[str]:
    out: list[str] = []
    others: list[str] = []
    items = iter(words)
    for word in items:
        values = _OF_LINKER.get(word)
        if values is None:
            others.append(word)
        else:
            out += [word, *itertools.islice(items, values)]
    if any("," in word for word in others):
        return out + [part for word in others for part in ("-Xlinker", word)]
    return out + (["-Wl," + ",".join(others)] if others else [])


def _not_found(command: list[str]) -> str:
    """The header that a compilation did not find, or ""."""
    try:
        done = subprocess.run(
            [*command, "-E", "-o", os.devnull],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError:
        return ""
    found = re.search(r"fatal error: '(\w+/[^']+)' file not found", done.stderr)
    return found[1] if found else ""


def _missing_header(name: str) -> str:
    """A line about a header of a Mac's framework, <Accelerate/Accelerate.h>, that is not there; "" for others."""
    framework = name.split("/")[0]
    if framework not in (*MISSING_FRAMEWORKS, *FRAMEWORKS, *EMPTY_FRAMEWORKS):
        return ""
    return f"metal_ops objc: there is no <{name}> on Linux; of Apple's frameworks {THERE_ARE}.\n"


def _rpath(word: str) -> str:
    """A Mac's names for the folder of the program and of the library, in those of ELF."""
    return re.sub(r"@(executable_path|loader_path)", "$ORIGIN", word) if "rpath" in word else word


def _link_flags(needed: bool) -> list[str]:
    """The libraries that a host links; a program in plain C that names no framework is tied to nothing that it does
    not use."""
    metal = flags.metal_link_flags()
    # The language of an object cannot be seen: C++'s library is there for objects that need it.
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
    # No prefix characters: arguments that start with a dash are the compiler's.
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "objc", add_help=False, prefix_chars="\0", help="Compile and link hosts that use Metal"
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    parser.set_defaults(run=lambda parsed: main(parsed.arguments))
