"""The compiler's stages, from a .metal file to an object (.air) and from objects to a .metallib."""

from __future__ import annotations

import json
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from . import cache, gpu, ir, toolchain
from .reflect import Reflection, Reflector
from .rewrite import Message, Source, flatten
from .seal import sealed
from .toolchain import CompileError
from .wrappers import wrappers

# The runtime refuses libraries with code that runs when they are loaded.
NO_CONSTRUCTORS = "SECTIONS { /DISCARD/ : { *(.preinit_array*) *(.init_array*) *(.ctors*) } }"
STACK_BYTES = 65536  # of a fiber; raised where a kernel's frames are larger
STACK_RESERVE = 16384  # for the C library's functions

__all__ = ["CompileError", "Options", "compile_metallib", "compile_object", "link"]


@dataclass(frozen=True)
class Options:
    """What the command line can say.

    Attributes:
      defines: `NAME` or `NAME=VALUE`.
      include: folders for #include.
      std: language version, (3, 1) for metal3.1.
      fast_math: allow reassociation and reciprocals (Apple's default; here it is off).
      warnings: clang's -W flags.
      target: `x86-64-v3`, `native` or another CPU name of clang's -march; None for the default.
      validation: also make the bounds-checked kernels for METAL_DEVICE_WRAPPER_TYPE=1.
      gpu: NVIDIA GPUs to make code for as well, `sm_80` or `sm_90`.
    """

    defines: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    std: tuple[int, int] = (3, 1)
    fast_math: bool = False
    warnings: tuple[str, ...] = ()
    target: str | None = None
    validation: bool = True
    undefines: tuple[str, ...] = field(default=())
    gpu: tuple[str, ...] = ()

    def language_defines(self, processor: str = "CPU") -> list[str]:
        """Predefined macros and the user's, in the order of the command line."""
        version = self.std[0] * 100 + self.std[1] * 10
        own = [
            f"__METAL_VERSION__={version}",
            "__METAL__=1",
            "__METAL_MACOS__=1",
            f"__METAL_{processor}__=1",
            "__HAVE_BFLOAT__=1",
        ]
        if self.fast_math:
            own.append("__METAL_FAST_MATH__=1")
        return [*own, *self.defines]


def compile_object(file: str, options: Options, text: str | None = None) -> tuple[bytes, str]:
    """One .metal file as a relocatable object, and the warnings.

    Args:
      file: its path, which messages name.
      text: its content, if not that of the file.

    Raises:
      CompileError: with the messages.
    """
    data, said = _processor_object(file, options, text)
    if not options.gpu:
        return data, said
    texts = [(name, _gpu_text(file, options, text, name)) for name in options.gpu]
    return _with_gpu(data, texts), said


def _flat(file: str, text: str | None, options: Options, defines: list[str]) -> str:
    include = [flag for folder in options.include for flag in ("-I", folder)]
    undefines = [f"-U{name}" for name in options.undefines]
    return flatten(file, text, [*include, *undefines], [f"-D{d}" for d in defines])


def _processor_object(file: str, options: Options, text: str | None) -> tuple[bytes, str]:
    defines = options.language_defines()
    flat = _flat(file, text, options, defines)
    target = options.target or toolchain.default_target()
    flags = toolchain.code_flags(target, options.fast_math)
    cpu = toolchain.host_cpu() if target == "native" else ""
    key = toolchain.cache_key(
        flat,
        *flags,
        cpu,
        repr(defines),
        repr(options.warnings),
        repr(options.std),
        str(options.validation),
        file,
    )
    # The messages lie before the object, so that both come from one write.
    kept = cache.read(f"{key}.air")
    if kept is not None:
        kept_text, _, data = kept.partition(b"\0")
        return data, kept_text.decode()
    with tempfile.TemporaryDirectory(prefix="metal-") as folder:
        data, said = _compile(flat, file, options, target, flags, defines, Path(folder))
    cache.write(f"{key}.air", said.encode() + b"\0" + data)
    return data, said


def gpu_usage(file: str, options: Options, text: str | None = None) -> list[gpu.Usage]:
    """What the kernels of one .metal file take of the GPUs of `options`.

    Raises:
      CompileError: with the messages.
    """
    return [
        usage
        for name in options.gpu
        for usage in gpu.assemble(_gpu_text(file, options, text, name), name)
    ]


def _gpu_text(file: str, options: Options, text: str | None, gpu_target: str) -> str:
    """PTX of one .metal file, from the cache where it is."""
    defines = options.language_defines("NVPTX") + gpu.defines(gpu_target)
    flat = _flat(file, text, options, defines)
    target = options.target or toolchain.default_target()
    flags = gpu.flags(gpu_target, options.fast_math)
    name = toolchain.cache_key(flat, *flags, repr(defines), repr(options.std), file) + ".ptx"
    kept = cache.read(name)
    if kept is not None:
        return kept.decode()
    front = toolchain.code_flags(target, options.fast_math)
    with tempfile.TemporaryDirectory(prefix="metal-") as folder:
        prelude = toolchain.prelude(target, options.fast_math, Path(folder))
        front += ["-include-pch", str(prelude), *options.warnings]
        source, reflection, _ = _reflect(flat, file, options, front, defines)
    code = source.text + gpu.wrappers(reflection)
    ptx = gpu.compile_text(code, reflection, gpu_target, options.fast_math)
    cache.write(name, ptx.encode())
    return ptx


def _with_gpu(data: bytes, texts: list[tuple[str, str]]) -> bytes:
    """The object with PTX beside its code, where library.cc's tables find it."""
    with tempfile.TemporaryDirectory(prefix="metal-") as folder:
        work = Path(folder)
        (work / "kernels.o").write_bytes(data)
        lines = []
        for i, (name, text) in enumerate(texts):
            (work / f"{i}.ptx").write_text(text)
            lines += [
                '.section .rodata.msl_gpu_text,"a"',
                f".Ltext{i}:",
                f'.incbin "{work}/{i}.ptx"',
                ".byte 0",
                f'.Lname{i}: .asciz "{name}"',
                '.section msl_gpu,"awR"',
                ".p2align 3",
                f".quad .Lname{i}, .Ltext{i}, {len(text.encode())}",
            ]
        toolchain.run(
            [toolchain.clang(), "-c", "-x", "assembler", "-", "-o", str(work / "gpu.o")],
            "the assembler",
            "\n".join(lines) + "\n",
        )
        out = work / "out.air"
        parts = [str(work / "kernels.o"), str(work / "gpu.o")]
        toolchain.run([toolchain.linker(), "-r", *parts, "-o", str(out)], "the linker")
        return out.read_bytes()


def _reflect(
    flat: str, file: str, options: Options, flags: list[str], defines: list[str]
) -> tuple[Source, Reflection, str]:
    """The rewritten source, what is in it, and the warnings; `flags` are all of clang's."""
    head = "".join(
        f"#define {re.sub('=', ' ', d, count=1) if '=' in d else d + ' 1'}\n" for d in defines
    )
    text = f"{head}# 1 {json.dumps(file)}\n{flat}"
    parser_flags = ["-x", "c++", "-fno-elide-type", "-ferror-limit=0", *flags]
    conditionals: frozenset[int] = frozenset()
    while True:
        source = Source(text, conditionals)
        reflector = Reflector(source, parser_flags, options.std)
        reflection = reflector.reflect()
        if reflector.conditionals <= conditionals:
            break
        conditionals |= reflector.conditionals
    said = render(reflection.messages, source)
    if any(m.severity == "error" for m in reflection.messages):
        count = sum(m.severity == "error" for m in reflection.messages)
        raise CompileError(f"{said}{count} error{'s' * (count > 1)} generated.")
    return source, reflection, said


def _compile(
    flat: str,
    file: str,
    options: Options,
    target: str,
    flags: list[str],
    defines: list[str],
    work: Path,
) -> tuple[bytes, str]:
    prelude = str(toolchain.prelude(target, options.fast_math, work))
    all_flags = [*flags, "-include-pch", prelude, *options.warnings]
    source, reflection, said = _reflect(flat, file, options, all_flags, defines)
    code = source.text + wrappers(reflection)
    constants = [c.name for c in reflection.constants]
    front = [
        *all_flags,
        "-w",
        "-x",
        "c++",
        "-",
        "-S",
        "-emit-llvm",
        "-Xclang",
        "-disable-llvm-passes",
        "-o",
        "-",
    ]
    text = toolchain.run([toolchain.clang(), *front], "the front end", code)
    names = ir.mark_names([kernel.host_name for kernel in reflection.kernels])
    variants = [(work / "kernels.o", lambda text: ir.unchecked(text) + names, _back_end)]
    if options.validation:
        variants.append((work / "checked.o", ir.checked, _back_end_checked))

    def back_ends(stack: int) -> int:
        prepared = ir.unaligned(ir.prepare(text, stack, constants))
        with ThreadPoolExecutor() as pool:
            jobs = [pool.submit(end, edit(prepared), target, part) for part, edit, end in variants]
            return max(job.result() for job in jobs)

    needed = back_ends(STACK_BYTES)
    if needed > STACK_BYTES:  # rare: large arrays in a kernel with barriers
        back_ends((needed + 4095) // 4096 * 4096)
    parts = [part for part, _, _ in variants]
    out = work / "out.air"
    toolchain.run([toolchain.linker(), "-r", *map(str, parts), "-o", str(out)], "the linker")
    return out.read_bytes(), said


def _back_end(text: str, target: str, out: Path) -> int:
    """IR to object; returns the bytes of stack that a fiber needs."""
    command = [
        toolchain.clang(),
        "-x",
        "ir",
        "-O3",
        "-fPIC",
        "-c",
        "-w",
        "-",
        "-o",
        str(out),
        *_march(target),
    ]
    toolchain.run([*command, "-fno-math-errno", "-fstack-usage"], "the optimiser", text)
    return _stack_needed(out)


def _back_end_checked(text: str, target: str, out: Path) -> int:
    common = [toolchain.clang(), "-x", "ir", "-fPIC", "-w", "-fno-math-errno", *_march(target), "-"]
    light = toolchain.run([*common, "-O1", "-S", "-emit-llvm", "-o", "-"], "the optimiser", text)
    # What is left to do is instruction selection: a call before every access leaves little to optimise.
    command = [*common, "-O0", "-c", "-fstack-usage", "-o", str(out)]
    toolchain.run(command, "the checked variant", ir.instrument(light))
    return _stack_needed(out)


def _march(target: str) -> list[str]:
    return [] if target == "generic" else [f"-march={target}"]


def _stack_needed(out: Path) -> int:
    """The largest kernel, everything that could not be inlined into it (there is no recursion), and libm."""
    kernels, others = [0], [0]
    usage = out.with_suffix(".su")  # not written where no function is left
    for line in usage.read_text().splitlines() if usage.exists() else []:
        name, size, _ = line.rsplit("\t", 2)
        own = "_msl_K" in name or "_msl_inner" in name or "_msl_run" in name
        (kernels if own else others).append(int(size))
    return max(kernels) + min(sum(others), 32 * max(others)) + STACK_RESERVE


def render(messages: list[Message], source: Source | None) -> str:
    """Messages as clang prints them: place, text, the line and a caret."""
    out = []
    for message in messages:
        place = message.place
        if place is None:
            out.append(f"metal: {message.severity}: {message.text}\n")
            continue
        out.append(
            f"{place.file}:{place.line}:{place.column}: {message.severity}: {message.text}\n"
        )
        line = source.source_line(place) if source else None
        if line is not None:
            lead = "".join("\t" if c == "\t" else " " for c in line[: place.column - 1])
            out.append(f"{line}\n{lead}^\n")
    return "".join(out)


def link(objects: list[bytes], target: str | None = None) -> bytes:
    """Objects of compile_object as one .metallib.

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
        checked = all(b"msl_kernels_checked\0" in data for data in objects)
        out = work / "out.metallib"
        command = [
            *(
                toolchain.linker(),
                "-shared",
                "-z",
                "now",
                "--gc-sections",
                "-z",
                "nostart-stop-gc",
                "-soname",
                "metallib",
            ),
            *(
                "--strip-debug",
                "--build-id=none",
                str(_library_object(target, checked, work)),
                *map(str, files),
            ),
            *("-L/lib/x86_64-linux-gnu", "-L/usr/lib/x86_64-linux-gnu", "-L/lib64", "-L/usr/lib64"),
            *("-l:libm.so.6", "-l:libc.so.6", "-o", str(out)),
        ]
        try:
            toolchain.run(command, "the linker")
        except CompileError as error:
            twice = re.findall(rf"duplicate symbol: {ir.NAME_MARK}(.*)", str(error))
            if not twice:
                raise
            raise CompileError(
                "".join(f"metallib: error: duplicate kernel name '{n}'\n" for n in twice)[:-1]
            ) from None
        return sealed(out.read_bytes())


def _library_object(target: str, checked: bool, work: Path) -> Path:
    """library.cc, which every .metallib carries, compiled once a machine, as a file in `work`."""
    cpu = toolchain.host_cpu() if target == "native" else ""
    name = f"library-{toolchain.cache_key(target, str(checked), cpu)}.o"
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


def dependencies(file: str, options: Options) -> list[str]:
    """The files that `file` is made of, itself first."""
    include = [flag for folder in options.include for flag in ("-I", folder)]
    flat = flatten(file, None, include, [f"-D{d}" for d in options.language_defines()])
    own = str(toolchain.library_root())
    names = dict.fromkeys(m.group(1) for m in re.finditer(r'^# \d+ "([^"]+)"', flat, re.M))
    return [n for n in names if not n.startswith(("<", own)) and n != file and Path(n).exists()] + [
        file
    ]


def compile_metallib(files: list[str], options: Options) -> tuple[bytes, str]:
    """.metal files as one .metallib, and the warnings."""
    objects, said = [], ""
    for file in files:
        data, words = compile_object(file, options)
        objects.append(data)
        said += words
    return link(objects, options.target), said
