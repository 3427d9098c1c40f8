"""Objects of the compiler as one .metallib."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from . import cache, toolchain
from .seal import sealed
from .toolchain import CompileError

# The runtime refuses libraries with code that runs when they are loaded.
NO_CONSTRUCTORS = "SECTIONS { /DISCARD/ : { *(.preinit_array*) *(.init_array*) *(.ctors*) } }"


def link(
    objects: list[bytes], target: str | None = None, later: str = "", checked: bool = False
) -> bytes:
    """Objects of compile_object as one .metallib.

    Args:
      objects: their content.
      target: the processor.
      later: The result of deferred.index() for them.
      checked: whether some describe checked kernels, and between them all of these.

    Raises:
      CompileError: two kernels have one name, or an input is no object of this compiler.
    """
    target = target or toolchain.default_target()
    with tempfile.TemporaryDirectory(prefix="metallib-") as folder:
        work = Path(folder)
        files = []
        for i, data in enumerate(objects):
            if not data.startswith(b"\x7fELF"):
                raise CompileError(
                    "metallib: error: an input is not an object of this compiler; make it with 'metal -c'"
                )
            files.append(work / f"{i}.air")
            files[-1].write_bytes(data)
        if later:
            files.append(_text_object(later, work))
        checked = checked or all(b"msl_kernels_checked\0" in data for data in objects)
        wide = any(b"msl_kernels_wide\0" in data for data in objects)
        extras = {
            name: any(mark in data for data in objects)
            for name, mark in (
                ("CHECKS", b"msl kernels with checks\0"),  # checks.MARK
                ("DEBUG", b".debug_info\0"),
                ("COVERAGE", b"__llvm_covfun\0"),
            )
        }
        extras["DEBUG"] &= not extras["CHECKS"]  # whose lines are in their sentences
        out = work / "out.metallib"
        command = [
            *(
                toolchain.linker(),
                "-shared",
                "-z",
                "now",
                "--gc-sections",
                *(() if extras["DEBUG"] or extras["COVERAGE"] else ("--icf=all", "--strip-all")),
                "-z",
                "nostart-stop-gc",
                "-soname",
                "metallib",
            ),
            *(
                "--build-id=none",
                str(_library_object(target, checked, wide, extras, work)),
                *map(str, files),
            ),
            *(_profile_runtime() if extras["COVERAGE"] else ()),
            *("-L/lib/x86_64-linux-gnu", "-L/usr/lib/x86_64-linux-gnu", "-L/lib64", "-L/usr/lib64"),
            *("-l:libm.so.6", "-l:libc.so.6", "-o", str(out)),
        ]
        try:
            toolchain.run(command, "the linker")
        except CompileError as error:
            twice = re.findall(rf"duplicate symbol: {toolchain.NAME_MARK}(.*)", str(error))
            if not twice:
                raise
            raise CompileError(
                "".join(f"metallib: error: duplicate kernel name '{n}'\n" for n in twice)[:-1]
            ) from None
        return sealed(out.read_bytes())


def _profile_runtime() -> list[str]:
    """The library that counters need; one that writes them in the end stays until then."""
    folder = toolchain.resources() / "lib"
    for place in (
        *folder.glob("linux/libclang_rt.profile-*"),
        *folder.glob("*/libclang_rt.profile.a"),
    ):
        if "i386" not in place.name:
            return ["-z", "nodelete", str(place)]
    raise CompileError(
        f"metal: error: --coverage: no libclang_rt.profile in {folder}; run 'sudo apt-get install libclang-rt-19-dev'"
    )


def _text_object(text: str, work: Path) -> Path:
    """METALLIB_DEFERRED_SYMBOL."""
    (work / "deferred").write_text(text)
    source = f'.section .rodata.deferred,"a"\n.globl metallib_v1_deferred\nmetallib_v1_deferred:\n.incbin "{work}/deferred"\n.byte 0\n'
    out = work / "deferred.o"
    command = [toolchain.clang(), "-x", "assembler", "-c", "-", "-o", str(out)]
    toolchain.run(command, "the assembler", source)
    return out


def _library_object(
    target: str, checked: bool, wide: bool, extras: dict[str, bool], work: Path
) -> Path:
    """library.cc, which every .metallib carries, compiled once per machine, as a file in `work`."""
    host = toolchain.host_cpu() if target == "native" else ""
    name = f"library-{toolchain.cache_key(target, str(checked), str(wide), str(extras), host)}.o"
    whole = work / "library.o"
    kept = cache.read(name)
    if kept is not None:
        whole.write_bytes(kept)
        return whole
    test = "1"
    label = target
    if target.startswith("x86-64"):
        test = f'__builtin_cpu_supports("{target}")'
    out = work / "library_cc.o"
    command = [
        *(
            toolchain.clang(),
            "-std=c++17",
            "-O2",
            "-fPIC",
            "-fvisibility=hidden",
            "-fno-exceptions",
            "-fno-rtti",
        ),
        *("-fomit-frame-pointer", f"-DMSL_CPU_TEST={test}", f'-DMSL_TARGET="{label}"'),
        f'-DMSL_COMPILER="metal_ops metal {toolchain.VERSION} (clang {toolchain.clang_version()})"',
        *(
            f"-DMSL_WITH_CHECKED={int(checked)}",
            f"-DMSL_WITH_WIDE={int(wide)}",
            *(f"-DMSL_WITH_{name}={int(has)}" for name, has in extras.items()),
            *["-g"] * extras["DEBUG"],
            f'-DMSL_WIDE_TARGET="{toolchain.WIDE}"',
            "-c",
            str(toolchain.library_root() / "lib" / "library.cc"),
        ),
        *("-o", str(out)),
    ]
    toolchain.run(command, "library.cc")
    script = work / "no_constructors.ld"
    script.write_text(NO_CONSTRUCTORS)
    # __builtin_cpu_supports reads a table that libgcc has, with a constructor that fills it. The one call does that too.
    gcc = toolchain.run([toolchain.clang(), "-print-libgcc-file-name"], "clang").strip()
    toolchain.run(
        [toolchain.linker(), "-r", str(out), gcc, "-T", str(script), "-o", str(whole)], "the linker"
    )
    cache.write(name, whole.read_bytes())
    return whole
