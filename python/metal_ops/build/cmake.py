"""`python -m metal_ops cmake`: a CMake toolchain file with which projects for macOS build on Linux.

The file names compilers that are `python -m metal_ops objc`, a folder where find_library finds Metal and Foundation,
and one with xcrun, metal and metallib. These lie in the cache, by the digest of their contents.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import sys
import tempfile
from pathlib import Path

from metal_ops.build import flags, objc
from metal_ops.build.flags import MissingToolError

DESCRIPTION = """\
Prints a CMake toolchain file with which projects that use Metal on macOS build on Linux.

  python -m metal_ops cmake > metal.cmake
  cmake -B build -DCMAKE_TOOLCHAIN_FILE=metal.cmake && cmake --build build

enable_language(OBJC), find_library(... Foundation), -framework Metal and custom commands that call
xcrun -sdk macosx metal work as on a Mac. With -DMETAL_OPS_APPLE=ON the variable APPLE is true in the project."""

# A command of this package from anywhere, whatever lies in the folder where it is called.
_COMMAND = 'exec {python} -P -m metal_ops {command} "$@"\n'

# Every compilation would start Python first: plain C and C++, which need nothing translated, go straight to clang.
_COMPILER = """\
#!/bin/sh
# {name} with Metal's headers and libraries; made by `python -m metal_ops cmake`.
straight=
for word; do
  case $word in
    -c) straight=${{straight:-yes}} ;;
    *.m|*.mm|*.M|*.s|*.S|-x*|-arch|-isysroot|-F*|-iframework|-m*os*-version-min*|-f*modules*|-f*arc*|-f*objc*|-stdlib=*|*target*|-ObjC|-*framework*)
      straight=no ;;
  esac
done
[ "$straight" = yes ] || {python_objc}
{compiler} {flags} "$@" && exit
code=$?
missing=$({compiler} {flags} "$@" -E -o /dev/null 2>&1 |
  sed -n "s|.*fatal error: '\\([A-Za-z]*/[^']*\\)' file not found.*|\\1|p" | head -n 1)
[ -z "$missing" ] || {python} -P -m metal_ops objc --missing "$missing"
exit $code
"""

_XCRUN = """\
#!/bin/sh
# What of Xcode's xcrun there is on Linux; made by `python -m metal_ops cmake`.
find= here={here}
while [ $# -gt 0 ]; do
  case $1 in
    -sdk|--sdk|-toolchain|--toolchain) shift; [ $# -eq 0 ] || shift ;;
    -f|-find|--find) find=yes; shift ;;
    -r|-run|--run|-v|-verbose|--verbose|-l|-log|--log|-n|-no-cache|--no-cache|-k|-kill-cache|--kill-cache) shift ;;
    -show-sdk-path|--show-sdk-path) echo /; exit 0 ;;
    -show-sdk-version|--show-sdk-version) echo 15.0; exit 0 ;;
    -*) echo "xcrun: error: there is no $1 on Linux" >&2; exit 64 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || {{ echo "xcrun: error: no command given" >&2; exit 64; }}
tool=$1; shift
case $tool in
  metal|metallib) path=$here/bin/$tool ;;
  clang|cc) path=$here/compilers/clang ;;
  clang++|c++) path=$here/compilers/clang++ ;;
  *) path=$(command -v "$tool") || {{
    echo "xcrun: error: unable to find utility \\"$tool\\", not a developer tool or in PATH" >&2; exit 72; }} ;;
esac
if [ "$find" ]; then echo "$path"; else exec "$path" "$@"; fi
"""

_TOOLCHAIN = """\
# Projects that use Metal, on Linux; made by `python -m metal_ops cmake` on this machine, for this machine.
set(CMAKE_C_COMPILER "{here}/compilers/clang")
set(CMAKE_CXX_COMPILER "{here}/compilers/clang++")
set(CMAKE_OBJC_COMPILER "{here}/compilers/clang")
set(CMAKE_OBJCXX_COMPILER "{here}/compilers/clang++")
# find_library(METAL Metal) and find_program(XCRUN xcrun).
list(APPEND CMAKE_LIBRARY_PATH "{here}/lib")
list(PREPEND CMAKE_PROGRAM_PATH "{here}/bin")
# xcrun by its name: while configuring, and in custom commands.
if(NOT "$ENV{{PATH}}" MATCHES "^{here}/bin:")
  set(ENV{{PATH}} "{here}/bin:$ENV{{PATH}}")
endif()
set_property(GLOBAL PROPERTY RULE_LAUNCH_CUSTOM "\\"{here}/with_tools\\"")
# find_library(X Accelerate) finds nothing, and says why.
if(NOT COMMAND _find_library)
  function(find_library variable)
    set(missing {missing})
    set(words ${{ARGN}})
    list(REMOVE_ITEM words REQUIRED)
    list(FIND ARGN REQUIRED required)
    list(FIND ARGN NO_CACHE local)
    _find_library(${{variable}} ${{words}})
    if("${{${{variable}}}}" MATCHES "-NOTFOUND$")
      foreach(word IN LISTS words)
        list(FIND missing "${{word}}" number)
        if(number LESS 0)
        elseif(required LESS 0)
          message(STATUS "There is no framework ${{word}} on Linux; {there_are}.")
        else()
          message(FATAL_ERROR "${{variable}}: there is no framework ${{word}} on Linux; {there_are}.")
        endif()
      endforeach()
      if(NOT required LESS 0)
        _find_library(${{ARGV}})
      endif()
    endif()
    if(NOT local LESS 0)
      set(${{variable}} "${{${{variable}}}}" PARENT_SCOPE)
    endif()
  endfunction()
endif()
# $<LINK_LIBRARY:FRAMEWORK,Metal>
set(CMAKE_LINK_LIBRARY_USING_FRAMEWORK "-framework <LIBRARY>")
set(CMAKE_LINK_LIBRARY_USING_FRAMEWORK_SUPPORTED TRUE)
# A project that asks if(APPLE) sees a Mac where -DMETAL_OPS_APPLE=ON.
option(METAL_OPS_APPLE "APPLE is true after project()" OFF)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES METAL_OPS_APPLE)
if(METAL_OPS_APPLE AND NOT CMAKE_PROJECT_INCLUDE)
  set(CMAKE_PROJECT_INCLUDE "{here}/apple.cmake")
endif()
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Adds the `cmake` command."""
    parser = subparsers.add_parser(
        "cmake",
        help="Print a CMake toolchain file with which projects for macOS build here",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--path",
        action="store_true",
        help="print the folder of xcrun, metal and metallib instead, for PATH",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints; returns 2 where a compiler, header or library is missing."""
    from metal_ops.metal.errors import CompileError

    if flags.MACOS:
        print("/usr/bin" if arguments.path else "# On macOS CMake knows Metal by itself.")
        return 0
    try:
        here = make_tools()
    except (MissingToolError, CompileError, OSError) as error:
        print(f"metal_ops cmake: {error}", file=sys.stderr)
        return 2
    print(here / "bin" if arguments.path else _toolchain(here), end="")
    if arguments.path:
        print()
    return 0


def _toolchain(here: Path) -> str:
    return _TOOLCHAIN.format(
        here=here,
        missing=" ".join(objc.MISSING_FRAMEWORKS),
        there_are=objc.THERE_ARE,
    )


def make_tools() -> Path:
    """The folder of compilers, libraries and tools; made, or completed, where it is not.

    Raises:
      MissingToolError: A compiler, header or library is missing.
      OSError: The cache cannot be written.
    """
    from metal_ops.metal import cache

    flags.require_runtime()
    compiler, headers = flags.compiler(), flags.host_flags()
    words = [sys.executable, *compiler, *headers, str(flags.PACKAGE), _XCRUN, _COMPILER, _TOOLCHAIN]
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    here = cache.folder().parent / f"cmake-{digest}"

    python = shlex.quote(sys.executable)
    straight = {"compiler": shlex.join(compiler), "flags": shlex.join(headers)}
    drivers = {
        f"compilers/{name}": _COMPILER.format(
            name=name,
            compiler=f"{straight['compiler']} --driver-mode={mode}",
            flags=straight["flags"],
            python=python,
            python_objc=_COMMAND.format(python=python, command="objc").strip(),
        )
        for name, mode in (("clang", "gcc"), ("clang++", "g++"))
    }
    programs = {
        **drivers,
        "bin/xcrun": _XCRUN.format(here=shlex.quote(str(here))),
        "bin/metal": "#!/bin/sh\n" + _COMMAND.format(python=python, command="metal"),
        "bin/metallib": "#!/bin/sh\n" + _COMMAND.format(python=python, command="metal metallib"),
        "with_tools": f'#!/bin/sh\nPATH={shlex.quote(str(here))}/bin:$PATH exec "$@"\n',
    }
    metal = f"INPUT({flags.PACKAGE / 'libhostmetal.so'} -lgnustep-base -lobjc)\n"
    files = {
        **{f"lib/lib{name}.so": metal for name in objc.FRAMEWORKS},
        **{f"lib/lib{name}.so": "INPUT(AS_NEEDED(-lm))\n" for name in objc.EMPTY_FRAMEWORKS},
        "apple.cmake": "set(APPLE TRUE)\n",
    }
    for name, text in {**files, **programs}.items():
        _provide(here / name, text, 0o700 if name in programs else 0o600)
    return here


def _provide(path: Path, text: str, mode: int) -> None:
    """In one step: another process sees the file as it was or as it shall be."""
    try:
        if path.read_text() == text:
            return
    except OSError:
        pass
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.chmod(part, mode)
    os.replace(part, path)
