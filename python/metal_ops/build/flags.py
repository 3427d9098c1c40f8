"""The compiler, the flags and the include folders for Objective-C++ kernels, on Linux and on macOS.

One place: the Makefile runs this file as a script, and `python -m metal_ops build` uses it for everybody's ops.
So it imports neither TensorFlow nor the rest of metal_ops.
"""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import os
import platform
import re
import runpy
import shutil
import struct
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
INCLUDE = PACKAGE / "include"
MACOS = platform.system() == "Darwin"
# Libraries that use Metal call API that macOS 13 has. bfloat came into shaders with Metal 3.1, which that does not
# load: built for it, they are without. CPU ops ask for less, the macOS of TensorFlow's wheels (the Makefile).
OLDEST_MACOS = 13
MACOS_WITH_BFLOAT = 14

# <mach-o/loader.h>: MH_MAGIC_64, LC_BUILD_VERSION.
_MACH_O = b"\xcf\xfa\xed\xfe"
_BUILD_VERSION = 0x32

APT_PACKAGES = "clang-19 lld-19 libobjc-12-dev libgnustep-base-dev"
INSTALL_METAL = (
    "run `pip install 'tensorflow-metal-ops[metal]'`, or `make metal` in the source checkout"
)


class MissingToolError(RuntimeError):
    """A compiler, header or library that the build needs is not installed, or there is no building for MACOS_OF_METAL.

    The message names the remedy.
    """


def macos_of_metal() -> str:
    """The oldest macOS for libraries that use Metal, from `MACOS_OF_METAL` in the environment or make's command line.

    Returns:
      E.g. "14.0", which is the default; on a machine with macOS 13 that is "13.0".

    Raises:
      MissingToolError: It is older than the Metal kernels can be built for, or no version.
    """
    if not (asked := os.environ.get("MACOS_OF_METAL", "")):
        here = platform.mac_ver()[0] if MACOS else ""
        return f"{OLDEST_MACOS if here.startswith(f'{OLDEST_MACOS}.') else MACOS_WITH_BFLOAT}.0"
    if not re.fullmatch(r"\d+(\.\d+){0,2}", asked) or int(asked.split(".")[0]) < OLDEST_MACOS:
        raise MissingToolError(
            f"MACOS_OF_METAL is {asked!r}, expected the macOS to build for: {MACOS_WITH_BFLOAT}.0, or another from "
            f"{OLDEST_MACOS}.0 on, the oldest that the Metal kernels run on; before {MACOS_WITH_BFLOAT}.0 they are "
            "without bfloat16."
        )
    return asked if "." in asked else f"{asked}.0"


def _has_bfloat() -> bool:
    return int(macos_of_metal().split(".")[0]) >= MACOS_WITH_BFLOAT


def _macos_version() -> str:
    return f"-mmacosx-version-min={macos_of_metal()}"


def macos_built_for(library: Path) -> tuple[int, int] | None:
    """The macOS that a library was linked for, from the linker's own record; None if there is none, as on Linux."""
    with library.open("rb") as file:
        header = file.read(32)
        if len(header) < 32 or header[:4] != _MACH_O:
            return None
        count, size = struct.unpack_from("<2I", header, 16)
        commands = file.read(size)
    at = 0
    for _ in range(count):
        command, size, _, version = struct.unpack_from("<4I", commands, at)
        if command == _BUILD_VERSION:
            return version >> 16, version >> 8 & 255
        at += size
    return None


def compiler() -> list[str]:
    """The Objective-C++ compiler's command, which compiles plain C++ too.

    Returns:
      E.g. `["clang++-19"]`, or `["xcrun", "-sdk", "macosx", "clang++"]` on macOS. `METAL_OPS_CXX` overrides it.

    Raises:
      MissingToolError: There is none.
    """
    if override := os.environ.get("METAL_OPS_CXX"):
        return override.split()
    if MACOS:
        if not shutil.which("xcrun"):
            raise MissingToolError("no compiler found; run 'xcode-select --install'.")
        return ["xcrun", "-sdk", "macosx", "clang++"]
    for version in ("-19", "-20", "-18", "-17", "-16", ""):
        if shutil.which(f"clang++{version}"):
            return [f"clang++{version}"]
    raise MissingToolError(
        f"clang was not found, and GCC knows no blocks; run 'sudo apt-get install {APT_PACKAGES}'."
    )


def objcxx_flags() -> list[str]:
    """Flags that turn `compiler()` into one for manual-retain Objective-C++17 against Metal's headers.

    Raises:
      MissingToolError: The Objective-C runtime's or GNUstep's headers are missing (Linux).
    """
    common = ["-x", "objective-c++", "-std=c++17", "-DNDEBUG", "-fPIC", "-ffp-contract=off"]
    if not _has_bfloat():
        common.append("-DMETAL_OPS_BFLOAT=0")  # kernels/runtime/dtype.h
    if MACOS:
        return [*common, _macos_version(), "-fno-objc-arc", "-fblocks"]
    return [*common, *objc_flags(), *header_flags()]


def objc_flags() -> list[str]:
    """Flags that Objective-C of either kind needs on Linux beside `header_flags()`."""
    return [
        # The runtime is GCC's. Code for ObjFW's calls the functions that it has, and its classes are not fixed in size,
        # hence instance variables anywhere, properties without @synthesize, ARC: hostmetal/src/objc_classes.mm.
        *("-fobjc-runtime=objfw", "-fexceptions", "-fobjc-exceptions"),
        *("-fconstant-string-class=NSConstantString", "-fno-strict-aliasing"),
        *("-D_NATIVE_OBJC_EXCEPTIONS", "-DGNUSTEP", "-DGNUSTEP_BASE_LIBRARY=1", "-DGNU_RUNTIME=1"),
    ]


def header_flags() -> list[str]:
    """Flags that every language needs on Linux to include the headers of Metal, Foundation, dispatch and objc.

    Raises:
      MissingToolError: The Objective-C runtime's or GNUstep's headers are missing.
    """
    runtime = _objc_headers()
    return [
        *("-fblocks", "-pthread"),
        *("-isystem", str(INCLUDE / "hostmetal")),
        *("-isystem", str(INCLUDE / "hostmetal" / "compat")),
        *("-isystem", _gnustep_headers()),
        # Last: beside objc/ lie intrinsics that only GCC understands.
        *("-idirafter", runtime),
    ]


def host_flags() -> list[str]:
    """`header_flags()`, the extra includes of the headers of a Mac's C++ library, and a header that kernels would take
    for a Mac's: they ask whether <os/signpost.h> is there.

    Raises:
      MissingToolError: The Objective-C runtime's or GNUstep's headers are missing.
    """
    own = [
        word
        for name in ("cxx", "hosts")
        for word in ("-isystem", str(INCLUDE / "hostmetal" / name))
    ]
    return [*own, *header_flags()]


def shader_flags() -> list[str]:
    """Options of Apple's `metal` for shaders whose results are those of the CPU.

    Its own defaults reorder sums and drop NaN (fast-math), and even without fast-math make one rounding of `a * b + c`,
    which breaks exact differences.
    """
    language = "-std=metal3.1" if _has_bfloat() else "-std=metal3.0"
    return [language, _macos_version(), "-fno-fast-math", "-ffp-contract=off"]


def metal_link_flags() -> list[str]:
    """The libraries that an op's shared object links for Metal and Foundation; the caller adds TensorFlow."""
    if MACOS:
        return [_macos_version(), "-framework", "Metal", "-framework", "Foundation"]
    return [
        f"-L{PACKAGE}",
        "-lhostmetal",
        # Beside the library first, so that a moved package still finds its runtime.
        "-Wl,-rpath,$ORIGIN",
        f"-Wl,-rpath,{PACKAGE}",
        *("-lgnustep-base", "-lobjc", "-pthread"),
    ]


def require_runtime() -> None:
    """Raises MissingToolError where there is no Metal to link against."""
    if not MACOS and not (PACKAGE / "libhostmetal.so").exists():
        raise MissingToolError(
            f"the Metal runtime {PACKAGE / 'libhostmetal.so'} is missing; {INSTALL_METAL}."
        )


def tensorflow_flags() -> tuple[list[str], list[str]]:
    """Compile and link flags for the installed TensorFlow, without importing it (that takes seconds).

    Raises:
      MissingToolError: TensorFlow is not installed.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        release = next(iter(runpy.run_path(str(PACKAGE / "_version.py"))["TENSORFLOW_RELEASES"]))
        raise MissingToolError(
            f"TensorFlow is not installed; run 'pip install tensorflow-cpu~={release}.0'."
        )
    folder = Path(list(spec.submodule_search_locations)[0])
    compile_flags = ["-isystem", str(folder / "include"), "-DEIGEN_MAX_ALIGN_BYTES=64"]
    compile_flags += _version_macros(folder / "include")
    if MACOS:
        return compile_flags, [f"-L{folder}", "-ltensorflow_framework.2"]
    link_flags = [f"-L{folder}", "-l:libtensorflow_framework.so.2"]
    return [*compile_flags, "-D_GLIBCXX_USE_CXX11_ABI=1"], link_flags


def _version_macros(headers: Path) -> list[str]:
    """TF_MAJOR_VERSION and so on where the headers leave them to who compiles, as in 2.21."""
    if not (headers / "tensorflow/core/public/release_version.h").exists():
        return []
    distribution = importlib.metadata.packages_distributions()["tensorflow"][0]
    numbers = re.findall(r"\d+", importlib.metadata.version(distribution))[:3]
    names = ("TF_MAJOR_VERSION", "TF_MINOR_VERSION", "TF_PATCH_VERSION")
    macros = [f"-D{name}={number}" for name, number in zip(names, numbers, strict=True)]
    return [*macros, '-DTF_VERSION_SUFFIX=""']


def _objc_headers() -> str:
    found = sorted(glob.glob("/usr/lib/gcc/*/*/include/objc/objc.h"))
    if not found:
        raise MissingToolError(
            f"the Objective-C runtime's headers are missing; run 'sudo apt-get install {APT_PACKAGES}'."
        )
    return str(Path(found[-1]).parents[1])


def _gnustep_headers() -> str:
    folders = ["/usr/include/GNUstep", "/usr/local/include/GNUstep"]
    if tool := shutil.which("gnustep-config"):
        answer = subprocess.run(
            [tool, "--variable=GNUSTEP_SYSTEM_HEADERS"], capture_output=True, text=True, check=False
        )
        folders.insert(0, answer.stdout.strip() or folders[0])
    for folder in folders:
        if (Path(folder) / "Foundation" / "Foundation.h").exists():
            return folder
    raise MissingToolError(
        f"GNUstep's headers are missing; run 'sudo apt-get install {APT_PACKAGES}'."
    )


def _write(folder: Path) -> None:
    """For the Makefile: the compiler's command, two files of options for it (`@folder/cflags`), one for shaders."""
    folder.mkdir(parents=True, exist_ok=True)
    # This library's own kernels lie beside the runtime, wherever that is.
    ldflags = [flag for flag in metal_link_flags() if flag != f"-Wl,-rpath,{PACKAGE}"]
    (folder / "ldflags").write_text("\n".join(ldflags) + "\n")
    (folder / "cflags").write_text("\n".join(objcxx_flags()) + "\n")
    (folder / "shader_flags").write_text("\n".join(shader_flags()) + "\n")
    (folder / "compiler").write_text(" ".join(compiler()) + "\n")  # last: make looks at this one


if __name__ == "__main__":
    try:
        _write(Path(sys.argv[1]))
    except MissingToolError as error:
        sys.exit(f"metal_ops: {error}")
