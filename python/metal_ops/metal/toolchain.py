"""Finds clang 19 and libclang, knows the flags of every stage, keeps the precompiled prelude."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import re
import subprocess
from pathlib import Path

from . import cache
from .errors import CompileError as CompileError

VERSION = "1"
NAME_MARK = "msl kernel "  # begins a symbol for each kernel, which the linker compares
# Sources of the compiler on which the code that it makes does not depend.
NO_STAGE = {
    *(
        "__init__.py",
        "__main__.py",
        "cache.py",
        "check_launch.py",
        "cli.py",
        "deferred.py",
        "errors.py",
    ),
    *("launch.py", "linking.py", "seal.py"),
}


# Processors with AVX-512. A shader's pragma asks for a second object for them, in case the first target lacks it.
WIDE = "x86-64-v4"
NARROW = ("x86-64", "x86-64-v2", "x86-64-v3")

# The flags that define the language here. One list for the precompiled prelude, for the syntax tree and for the code.
LANGUAGE = [
    "-std=gnu++17",
    "-fdeclspec",  # swizzles are properties
    # SYCL's address spaces are checked like MSL's; see hostmetal/msl/lib/types.h.
    *("-Xclang", "-fsycl-is-device", "-Xclang", "-aux-triple", "-Xclang", "x86_64-pc-linux-gnu"),
    *("-Xclang", "-cl-single-precision-constant"),  # 1.0 is a float
    *("-Xclang", "-ffloat16-excess-precision=none"),  # half rounds after every operation
    "-fno-strict-float-cast-overflow",  # float -> int saturates, NaN becomes 0
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fno-finite-loops",
    "-fno-math-errno",
    "-fno-exceptions",
    "-fno-rtti",
    "-fvisibility=hidden",
    "-fPIC",
    "-Wno-user-defined-literals",
    "-Wno-reserved-user-defined-literal",
    "-Wno-c++11-narrowing",
    "-Wno-duplicate-decl-specifier",
    "-Wno-unknown-attributes",
    "-Wno-ignored-attributes",
    "-Wno-vla-cxx-extension",
]
EXACT = ["-ffp-contract=off"]
FAST = [
    "-ffast-math",
    "-fno-finite-math-only",
    "-D_MSL_FAST_MATH",
]  # as on Apple's GPUs, infinities and NaNs stay what they are


def program(name: str, variable: str, package: str) -> str:
    """A tool of LLVM 19, or the one in an environment variable.

    Raises:
      CompileError: it is not there; the sentence names the package.
    """
    asked = os.environ.get(variable)
    for candidate in (
        [asked] if asked else [name, f"/usr/lib/llvm-19/bin/{name.removesuffix('-19')}"]
    ):
        for folder in [""] if "/" in candidate else os.get_exec_path():
            path = os.path.join(folder, candidate)
            if os.access(path, os.X_OK) and os.path.isfile(path):
                return path
    raise CompileError(
        f"metal: error: '{asked or name}' was not found; run 'sudo apt-get install {package}' or set {variable}"
    )


@functools.cache
def clang() -> str:
    """The compiler, clang++ 19 or the one in METAL_OPS_CLANG."""
    return program("clang++-19", "METAL_OPS_CLANG", "clang-19")


@functools.cache
def clang_version() -> str:
    """'19.1.7', and fails with a sentence where it is another major release."""
    said = subprocess.run([clang(), "--version"], capture_output=True, text=True, check=True).stdout
    version = said.split("version ", 1)[-1].split()[0]
    if not version.startswith("19."):
        raise CompileError(
            f"metal: error: {clang()} is clang {version}, and clang 19 is needed; run 'sudo apt-get install clang-19' "
            "or set METAL_OPS_CLANG"
        )
    return version


@functools.cache
def resources() -> Path:
    """The folder of clang's own headers, <stddef.h> and <stdint.h> among them, and of its runtime libraries."""
    # It is asked, as its name may be a link to a compiler cache.
    return Path(run([clang(), "-print-resource-dir"], "clang").strip())


@functools.cache
def libclang() -> str:
    """clang's library of the same release: only that one reads its precompiled headers."""
    asked = os.environ.get("METAL_OPS_LIBCLANG")
    folder = resources().parents[1]
    places = (
        [Path(asked)]
        if asked
        else [*folder.glob("libclang-19.so*"), *folder.glob("libclang.so.1*")]
    )
    for place in places:
        if place.exists():
            return str(place)
    raise CompileError(
        f"metal: error: no libclang of clang 19 in {folder}; run 'sudo apt-get install libclang1-19' or set "
        "METAL_OPS_LIBCLANG"
    )


@functools.cache
def linker() -> str:
    """ld.lld of LLVM 19."""
    return program("ld.lld-19", "METAL_OPS_LLD", "lld-19")


@functools.cache
def library_root() -> Path:
    """The folder hostmetal/msl: the headers that shaders see, and those behind them."""
    here = Path(__file__).resolve().parent
    for place in [
        Path(os.environ.get("METAL_OPS_MSL", here / "msl")),
        here.parents[2] / "hostmetal" / "msl",
    ]:
        if (place / "lib" / "prelude.h").exists():
            return place
    raise CompileError(
        "metal: error: the Metal library (hostmetal/msl) is missing; reinstall metal_ops"
    )


@functools.cache
def _library_digest() -> str:
    digest = hashlib.sha256()
    files = [
        *library_root().glob("*.h"),
        *library_root().glob("lib/*"),
        *(f for f in Path(__file__).parent.glob("*.py") if f.name not in NO_STAGE),
    ]
    for file in sorted(files):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    digest.update(f"{VERSION} {clang()} {clang_version()}".encode())
    return digest.hexdigest()


def default_target() -> str:
    """The code's CPU: x86-64-v3 (AVX2, FMA, F16C: 2013 and later) or METAL_OPS_MARCH; elsewhere the compiler's own."""
    asked = os.environ.get("METAL_OPS_MARCH")
    if asked:
        return asked
    return "x86-64-v3" if platform.machine() in ("x86_64", "AMD64") else "generic"


def march(target: str) -> list[str]:
    """clang's flags for a processor."""
    if target == WIDE:
        # clang's own choice for this name are vectors of 256 bits: some of the first such processors slow down.
        return [f"-march={target}", "-mprefer-vector-width=512"]
    return [] if target == "generic" else [f"-march={target}"]


def code_flags(target: str, fast_math: bool) -> list[str]:
    """Flags of LANGUAGE plus those that the user chooses."""
    return [*LANGUAGE, *(FAST if fast_math else EXACT), *march(target), "-O3"]


@functools.cache
def attributes(target: str) -> str:
    """The attributes of functions in IR that are compiled for a processor."""
    command = [clang(), "-x", "c", "-", "-S", "-emit-llvm", "-o", "-", *march(target)]
    text = run(command, "clang", "void f(void) {}\n")
    found = re.findall(r'"(?:prefer-vector-width|target-cpu|target-features)"="[^"]*"', text)
    return " ".join(found)


@functools.cache
def host_cpu() -> str:
    """The meaning of `-march=native` on this machine, as a key for the cache."""
    said = subprocess.run(
        [clang(), "-march=native", "-x", "c", "-", "-###", "-c"],
        input="",
        capture_output=True,
        text=True,
    ).stderr
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def cache_key(*parts: str) -> str:
    """A name for the result of `parts` by this compiler and this library."""
    digest = hashlib.sha256(_library_digest().encode())
    for part in parts:
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:40]


def digest(text: str) -> str:
    """A short name for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run(command: list[str], what: str, text: str | None = None) -> str:
    """Runs a stage that cannot fail on the user's account: if it does, the message says which and shows all of it."""
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise CompileError(f"metal: error: internal: {what} failed\n{done.stderr}")
    return done.stdout


def prelude(target: str, fast_math: bool, folder: Path) -> Path:
    """The precompiled metal_stdlib for these flags, made once per machine, as a file in `folder`."""
    cpu = host_cpu() if target == "native" else ""
    return prelude_of(code_flags(target, fast_math), folder, cpu)


def prelude_of(flags: list[str], folder: Path, cpu: str = "") -> Path:
    """The precompiled metal_stdlib for these flags of clang."""
    # clang refuses a precompiled header whose sources moved or have another time than when it was made: another
    # checkout, or a `git checkout` to and fro.
    sources = [library_root() / "metallib_abi.h", *sorted(library_root().glob("lib/*"))]
    stamps = [f"{file} {file.stat().st_mtime_ns}" for file in sources if file.exists()]
    name = f"prelude-{cache_key(*flags, cpu, *stamps)}.pch"
    path = folder / "prelude.pch"
    kept = cache.read(name)
    if kept is not None:
        path.write_bytes(kept)
        return path
    source = library_root() / "lib" / "prelude.h"
    run([clang(), *flags, "-x", "c++-header", str(source), "-o", str(path)], "the prelude")
    cache.write(name, path.read_bytes())
    return path
