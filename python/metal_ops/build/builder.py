"""Compiles an op library: C++ and Objective-C++ sources to a shared object, Metal shaders to a metallib beside it."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from metal_ops.build import flags, headers
from metal_ops.build.flags import MissingToolError

SOURCE_SUFFIXES = (".cc", ".cpp", ".cxx", ".mm", ".m")
SHADER_SUFFIXES = (".metal",)

# Samples keep Objective-C++ in .cc files and tell the compiler by a flag, so the suffix alone says nothing.
_OBJECTIVE_C = re.compile(
    r"^\s*#\s*import\b|^\s*@(?:protocol|interface|implementation|class)\b|@autoreleasepool\b"
    r"|#\s*include\s*<(?:Metal|Foundation)/",
    re.MULTILINE,
)
_OWN_FACE = re.compile(r'^\s*#\s*(?:include|import)\s*"kernels/(\w+/\w+)\.h"', re.MULTILINE)


class BuildError(RuntimeError):
    """The op library could not be built. The message names the file and the remedy."""


def is_objective_c(source: Path) -> bool:
    """Whether a source must be compiled as Objective-C++, whatever its name ends in."""
    return source.suffix in (".mm", ".m") or bool(_OBJECTIVE_C.search(_read(source)))


def build_op(
    sources: Sequence[str | Path],
    shaders: Sequence[str | Path] = (),
    output: str | Path = "op.so",
    *,
    metallib: str | Path | None = None,
    include: Sequence[str | Path] = (),
    options: Sequence[str] = (),
    shader_options: Sequence[str] = (),
    verbose: bool = False,
) -> list[Path]:
    """Builds one op library.

    Args:
      sources: C++ and Objective-C++ files: REGISTER_OP, CPU kernels, Metal kernels. Objective-C is found in
        .cc files too. A source that includes "kernels/runtime/..." gets this library's C++ face linked in.
      shaders: Metal files; all go into one metallib.
      output: The shared object to write, to be loaded by `tf.load_op_library`.
      metallib: Where the compiled shaders go. Default: beside `output`, with suffix .metallib, which is where
        kernels look that ask dladdr.
      include: More include folders, for sources and shaders.
      options: More options for the C++ compiler, e.g. "-O3".
      shader_options: More options for the shader compiler, e.g. "-ffast-math".
      verbose: Print every command.

    Returns:
      The files written.

    Raises:
      BuildError: A file is missing or does not compile, or a tool is not installed. Nothing half-written is left.
    """
    source_paths = _existing(sources, SOURCE_SUFFIXES, "source")
    shader_paths = _existing(shaders, SHADER_SUFFIXES, "shader")
    if not source_paths:
        raise BuildError("no sources given; name at least one with --ops or --kernels.")
    output = Path(output)
    if output.suffix not in (".so", ".dylib"):
        raise BuildError(
            f"the output {output} should end in .so: tf.load_op_library takes shared objects."
        )
    library = Path(metallib) if metallib else output.with_suffix(".metallib")
    written = []
    try:
        for path in (output, library):
            path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="metal_ops_build_") as scratch:
            build = _Build(Path(scratch), [Path(i) for i in include], list(options), verbose)
            if shader_paths:
                with _replacing(library) as part:
                    build.compile_shaders(shader_paths, part, list(shader_options))
                written.append(library)
            with _replacing(output) as part:
                build.compile_and_link(source_paths, part, output.name)
            written.append(output)
    except MissingToolError as error:
        raise BuildError(str(error)) from None
    except OSError as error:
        name = error.filename2 or error.filename
        raise BuildError(f"{name}: {error.strerror}; the library was not written.") from None
    return written


class _Build:
    """One run: its scratch folder and the state that all its commands share."""

    def __init__(self, scratch: Path, include: list[Path], options: list[str], verbose: bool):
        self.scratch = scratch
        self.include = include
        self.options = options
        self.verbose = verbose
        self.tf_compile, self.tf_link = flags.tensorflow_flags()

    def compile_and_link(self, sources: list[Path], output: Path, name: str) -> None:
        sources = [*sources, *self._support(sources)]
        compiler = flags.compiler()
        objective_c = {source: is_objective_c(source) for source in sources}
        moved = headers.link_moved(
            Path(self.tf_compile[self.tf_compile.index("-isystem") + 1]), self.scratch / "moved"
        )
        shared = [
            *("-O2", "-fPIC", "-DNDEBUG", "-Wall" if self.verbose else "-Wno-everything"),
            *self.options,
            *(f"-I{folder}" for folder in self.include),
            f"-I{flags.INCLUDE}",
            *("-isystem", str(flags.INCLUDE / "compat")),
            *(word for folder in moved for word in ("-idirafter", str(folder))),
            *("-include", "metal_ops_compat.h"),
        ]
        objcxx = flags.objcxx_flags() if any(objective_c.values()) else []

        def compile_one(job: tuple[int, Path]) -> Path:
            number, source = job
            result = self.scratch / f"{number}.o"
            language = objcxx if objective_c[source] else ["-std=c++17"]
            command = [
                *compiler,
                *language,
                *shared,
                *self.tf_compile,
                "-c",
                _argument(source),
                "-o",
                str(result),
            ]
            self._compile(command, source)
            return result

        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            objects = list(pool.map(compile_one, enumerate(sources)))
        metal = flags.metal_link_flags() if objcxx else []
        if objcxx:
            flags.require_runtime()
        self._run(
            [*compiler, "-shared", *map(str, objects), "-o", str(output), *metal, *self.tf_link],
            f"{name} does not link",
        )

    def _support(self, sources: list[Path]) -> list[Path]:
        """Our own sources that these ones need, as one: each by itself would read TensorFlow's headers anew."""
        support = _support(sources)
        if not support:
            return []
        unit = self.scratch / "support.mm"
        unit.write_text("".join(f'#include "{source}"\n' for source in support))
        return [unit]

    def _compile(self, command: list[str], source: Path) -> None:
        """Compiles as C++17 and, if that fails, as C++20: TensorFlow's headers take both, and sources do not say."""
        failure = f"{source} does not compile"
        try:
            return self._run(command, failure)
        except BuildError as error:
            first = error
        newer = ["-std=c++20" if word == "-std=c++17" else word for word in command]
        try:
            self._run(newer, "")
        except BuildError:
            raise first from None

    def compile_shaders(self, shaders: list[Path], output: Path, options: list[str]) -> None:
        folders = [f"-I{folder}" for folder in (*self.include, flags.INCLUDE)]
        if flags.MACOS:
            tool = ["xcrun", "-sdk", "macosx", "metal", *flags.shader_flags()]
        else:
            tool = [sys.executable, "-m", "metal_ops", "metal"]
        command = [*tool, *folders, *options, *map(_argument, shaders), "-o", str(output)]
        self._run(command, f"{', '.join(map(str, shaders))}: the shaders do not compile")

    def _run(self, command: list[str], failure: str) -> None:
        if self.verbose:
            print(" ".join(command), file=sys.stderr)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False
            )
        except FileNotFoundError:
            raise MissingToolError(
                f"{command[0]} was not found; run 'sudo apt-get install {flags.APT_PACKAGES}'."
            ) from None
        text = (done.stderr + done.stdout).strip()
        if done.returncode != 0:
            raise BuildError(f"{failure}:\n{text}")
        if text:
            print(text, file=sys.stderr)


def _support(sources: list[Path]) -> list[Path]:
    """Our own sources that these ones need."""
    texts = [_read(source) for source in sources]
    # Files that exist, picked by names in the sources: these names make no path.
    face = [
        file
        for folder in (flags.INCLUDE, flags.INCLUDE / "compat")
        for file in folder.glob("kernels/*/*")
        if file.suffix in (".h", ".mm")
    ]
    seen: set[str] = set()
    support: list[Path] = []
    unread = list(texts)
    while unread:  # a header of the C++ face brings the source of its name, and its includes
        stems = set(_OWN_FACE.findall(unread.pop())) - seen
        seen |= stems
        files = [file for file in face if f"{file.parent.name}/{file.stem}" in stems]
        unread += [_read(file) for file in files]
        support += [file for file in files if file.suffix == ".mm"]
    support.sort()
    if not flags.MACOS and any("NSBundle" in text for text in texts):
        support.append(flags.INCLUDE / "support" / "main_bundle.mm")
    return support


def _existing(paths: Sequence[str | Path], suffixes: tuple[str, ...], what: str) -> list[Path]:
    for path in map(Path, paths):
        try:
            there = path.is_file()
        except OSError as error:  # a name that is too long, a loop of links
            raise BuildError(f"the {what} {path} cannot be read: {error.strerror}.") from None
        if not there:
            raise BuildError(f"the {what} {path} does not exist.")
        if path.suffix not in suffixes:
            raise BuildError(f"the {what} {path} should end in {' or '.join(suffixes)}.")
    return [Path(path) for path in paths]


def _argument(path: Path) -> str:
    """The path as a compiler takes it for one: a leading - would make it an option, @ a list of options."""
    text = str(path)
    return f"./{text}" if text.startswith(("-", "@")) else text


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yields a path to write to, which takes the place of `path` when the block succeeds.

    In a folder of its own beside it, as another user may have put a link at a name that can be guessed.
    """
    with tempfile.TemporaryDirectory(prefix=".metal_ops_", dir=path.parent) as folder:
        part = Path(folder) / f"part{path.suffix}"
        yield part
        os.replace(part, path)
