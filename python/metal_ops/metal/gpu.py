"""The compiler's other target: PTX for NVIDIA GPUs, from the same rewritten source and the same reflection.

Every kernel becomes an entry point `msl_<name>` whose parameters are the grid (gpu_runtime.h) and then, in order of
declaration, a pointer a buffer, an offset a threadgroup argument, a pointer a texture or sampler. A small `constant T&` is
a pointer and the value itself: setBytes then needs no memory. The runtime (hostmetal/src/cuda) reads the same reflection.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from . import cache, ir, toolchain
from .abi import abi, number
from .reflection import Kernel, Reflection
from .toolchain import CompileError
from .wrappers import logging_constant, logs

TARGETS = ("sm_80", "sm_90")


def entry_name(host_name: str) -> str:
    """The entry point's symbol: PTX has no other characters than these."""
    return "msl_" + re.sub(r"[^A-Za-z0-9_]", lambda m: f"${ord(m[0]):02x}", host_name)


def defines(target: str) -> list[str]:
    """Predefined macros beside those of every target."""
    hopper = ["__HAVE_ATOMIC_FLOAT_VECTOR__=1", "__HAVE_WARPGROUP_MATRIX__=1"]
    return [
        *("__HAVE_SIMDGROUP_MATRIX_16__=1", "__HAVE_THREADGROUP_COPY_ASYNC__=1"),
        *(hopper if target == "sm_90" else []),
    ]


# Subnormal numbers of 32 bits are 0 with fast math; on processors the caller of kernels sets that
# (METALLIB_KERNEL_FLUSHES).
FLUSHES = ["-Xclang", "-fdenormal-fp-math-f32=preserve-sign,preserve-sign"]


def flags(target: str, fast_math: bool) -> list[str]:
    """Flags of the language for a GPU."""
    language = [flag for flag in toolchain.LANGUAGE if flag != "-fPIC"]
    return [
        "--target=nvptx64-nvidia-cuda",
        *(f"-march={target}", f"-D_MSL_SM={target.removeprefix('sm_')}"),
        *("-nogpulib", "-ffreestanding", "-isystem", str(toolchain.resources() / "include")),
        # uint64_t is ulong, as for the host, not unsigned long long.
        *(
            "-Wno-builtin-macro-redefined",
            "-D__INT64_TYPE__=long",
            "-D__UINT64_TYPE__=unsigned long",
        ),
        "--cuda-feature=+ptx81",  # drivers from 530 on; the vector atomics of sm_90 need it
        # Overloads by address space: `constant` and `thread` have one number on a GPU, and names by numbers are equal.
        *("-Xclang", "-faddress-space-map-mangling=no"),
        *language,
        *(toolchain.FAST + FLUSHES if fast_math else toolchain.EXACT),
        "-O3",
    ]


def wrappers(reflection: Reflection) -> str:
    """C++ text to append to the rewritten shader."""
    parts = ['\n# 1 "<kernel wrappers>"\n', logging_constant(reflection)]
    derived = [c for c in reflection.constants if c.index is None]
    for c in derived:
        integer = {1: "uchar", 2: "ushort", 4: "uint"}.get(c.size, "ulong")
        scope = c.qualified.rsplit("::", 1)[0]
        parts.append(
            f'extern "C" inline __attribute__((used)) {integer} _msl_derived_{c.name}() {{\n'
            f"const _msl::plain<decltype({c.qualified})> _msl_v = {scope}::_msl_derive_{c.name}();\n"
            f"{integer} _msl_i; __builtin_memcpy(&_msl_i, (const void*)&_msl_v, sizeof _msl_i); return _msl_i; }}\n"
        )
    parts += [_kernel(n, k, logs(k, reflection)) for n, k in enumerate(reflection.kernels)]
    return "".join(parts)


def _kernel(number: int, kernel: Kernel, logs: bool) -> str:
    arguments = {a.position: a for a in kernel.arguments if a.element == 0}
    parameters, fetches, calls = ["const _msl::Grid _msl_g"], [], []
    for i in range(kernel.n_parameters):
        kind = f"_msl_K{number}::_msl_P<{i}>"
        if i in kernel.positions:
            calls.append(f"_msl::{kernel.positions[i]}<{kind}>(&_msl_l, _msl_p)")
            continue
        argument = arguments[i]
        if argument.kind in ("TEXTURE", "SAMPLER"):
            what = "metallib_" + argument.kind.lower()
            if argument.elements > 1:
                names = [f"_msl_{i}_{k}" for k in range(argument.elements)]
                parameters += [f"const device {what}* {name}" for name in names]
                pointers = ", ".join(f"(const {what}*){name}" for name in names)
                calls.append(f"_msl::textures<{kind}>({pointers})")
                continue
            parameters.append(f"const device {what}* _msl_{i}")
            made = f"metal::sampler((const {what}*)_msl_{i})"
            if argument.kind == "TEXTURE":
                calls.append(f"{kind}((const {what}*)_msl_{i})")
            else:
                calls.append(f"_msl_{i} ? {made} : metal::sampler()")
            continue
        pointee = f"_msl::pointee<{kind}>"
        if argument.kind == "THREADGROUP":
            parameters.append(f"uint _msl_{i}")
            value = f"({pointee}*)(_msl::threadgroup_memory + _msl_{i})"
        elif argument.kind == "CONSTANT" and argument.reference and argument.enabled_by is None:
            parameters.append(f"const _msl::Passed<_msl::plain<{pointee}>> _msl_{i}")
            fetches.append(f"const _msl::Fetched<_msl::plain<{pointee}>> _msl_v{i}(_msl_{i});\n")
            value = f"({pointee}*)_msl_v{i}.at()"
        elif argument.kind == "CONSTANT":
            # Constant memory is not written while the kernel runs: it may come through the read-only cache.
            parameters.append(f"const device char* __restrict _msl_{i}")
            value = f"({pointee}*)(const void*)_msl_{i}"
        else:
            parameters.append(f"{pointee}* _msl_{i}")
            value = f"_msl_{i}"
        calls.append(f"*({value})" if argument.reference else value)
    log = ""
    if logs:
        parameters.append("device metallib_log* _msl_log_buffer")
        name = kernel.host_name.replace("\\", "\\\\").replace('"', '\\"')
        log = f'_msl::log_in((metallib_log*)_msl_log_buffer, "{name}", _msl_g);\n'
    return f"""
struct _msl_K{number} {{
template <int _msl_i> using _msl_P = _msl::parameter<decltype({kernel.callee}), _msl_i>;
}};
extern "C" __attribute__((nvptx_kernel, used, visibility("default"))) void {entry_name(kernel.host_name)}({", ".join(parameters)}) {{
_msl::GpuLaunch _msl_l;
_msl::Position _msl_p;
if (!_msl::enter(_msl_g, _msl_l, _msl_p)) return;
{log}{"".join(fetches)}[[clang::always_inline]] {kernel.callee}({", ".join(calls)});
}}
"""


_DEFINE = re.compile(
    r"^define (?:(?:weak_odr|linkonce_odr|linkonce|weak|hidden|dso_local|internal|protected)\s+)*"
    r"(?!.*@\"?msl_)",
    re.M,
)
_DERIVED = re.compile(
    r"^(\s*)(%\S+) = load (i8|i16|i32|i64|float|half), ptr @_msl_fc_(\w+), (align .*)$", re.M
)


def _prepare(text: str, derived: list[str]) -> str:
    """Like ir.prepare: functions that no kernel reaches are left out, and divisions are safe and give the CPU's
    results."""
    text = re.sub(
        r"(?m)^@llvm\.global\.annotations = .*\n|^  call void @llvm\.var\.annotation\b.*\n",
        "",
        text,
    )
    # `used` has done its work in the front end.
    text = re.sub(r"(?m)^@llvm\.(compiler\.)?used = .*\n", "", text)
    text = _DEFINE.sub("define internal ", text)
    text = ir.internal_globals(text)
    # Threadgroup memory cannot be initialised.
    text = re.sub(
        r"(?m)^(@\S+ = internal (?:unnamed_addr )?addrspace\(3\) global .+?) zeroinitializer",
        r"\1 undef",
        text,
    )

    def derive(m: re.Match[str]) -> str:
        indent, result, kind, name, _ = m.groups()
        if name not in derived:
            return m[0]
        if kind in ("float", "half"):
            width = "i32" if kind == "float" else "i16"
            return (
                f"{indent}{result}.bits = call {width} @_msl_derived_{name}()\n"
                f"{indent}{result} = bitcast {width} {result}.bits to {kind}"
            )
        return f"{indent}{result} = call {kind} @_msl_derived_{name}()"

    return ir.guard_divisions(_DERIVED.sub(derive, text))


def compile_text(text: str, reflection: Reflection, target: str, fast_math: bool) -> str:
    """The rewritten source as PTX."""
    # A kernel of too much threadgroup memory has no pipeline, and the driver would refuse the others with it.
    limit = number("MAX_THREADGROUP_MEMORY")
    kernels = [k for k in reflection.kernels if not k.visible and k.static_bytes <= limit]
    reflection = replace(reflection, kernels=kernels)
    for kernel in reflection.kernels:
        for argument in kernel.arguments:
            if argument.kind == "TABLE":
                raise CompileError(
                    f"{kernel.place.file}:{kernel.place.line}:{kernel.place.column}: error: argument '{argument.name}' is a "
                    "table of functions, which GPUs do not have here; compile it for the processor"
                )
    code = text + wrappers(reflection)
    with tempfile.TemporaryDirectory(prefix="metal-") as folder:
        prelude = str(toolchain.prelude_of(flags(target, fast_math), Path(folder)))
        common = [*flags(target, fast_math), "-include-pch", prelude, "-w", "-x", "c++", "-"]
        front = [
            *(toolchain.clang(), *common, "-S", "-emit-llvm", "-Xclang", "-disable-llvm-passes"),
            *("-o", "-"),
        ]
        text = toolchain.run(front, "the front end for GPUs", code)
    derived = [c.name for c in reflection.constants if c.index is None]
    text = toolchain.run(
        [
            *(toolchain.clang(), "--target=nvptx64-nvidia-cuda", f"-march={target}", "-nogpulib"),
            *("--cuda-feature=+ptx81", "-x", "ir", "-O3", "-w", "-S", "-", "-o", "-"),
        ],
        "the optimiser for GPUs",
        _prepare(text, derived),
    )
    # PTX's .ftz of halves would flush theirs, which are numbers with fast math, too.
    text = re.sub(r"\.ftz(?=\.b?f16(x2)?\b)", "", text)
    for name in derived:
        if f"_msl_fc_{name}" in text:  # read in another way than as a number
            raise CompileError(
                f"metal: error: function constant '{name}' is derived from others; for a GPU it has to be a scalar"
            )
    for kernel in reflection.kernels:
        if kernel.max_threads < number("MAX_THREADS"):  # more registers a thread may be used then
            entry = re.escape(entry_name(kernel.host_name))
            bounds = f".maxntid {kernel.max_threads}, 1, 1"
            body = re.search(rf"(?ms)^\.visible \.entry {entry}\(.*?^\}}$", text)
            # Kernels that hand registers on begin with a known number of them.
            if body and "setmaxnreg." in body[0]:
                bounds += "\n.minnctapersm 1"
            text = re.sub(
                rf"(?ms)^(\.visible \.entry {entry}\(.*?\n\))( *//[^\n]*)?$(?=\n\{{)",
                rf"\1\n{bounds}",
                text,
            )
    # Comments are half of the text.
    return re.sub(r"(?m)[ \t]*//.*$\n?", "\n", text).replace("\n\n", "\n")


def attach(data: bytes, texts: list[tuple[str, str]]) -> bytes:
    """The object with PTX, by its target, beside its code, where library.cc's tables find it."""
    with tempfile.TemporaryDirectory(prefix="metal-") as folder:
        work = Path(folder)
        (work / "kernels.o").write_bytes(data)
        lines = []
        for i, (name, text) in enumerate(texts):
            (work / f"{i}.ptx").write_text(text)
            values = {"target": f".Lname{i}", "text": f".Ltext{i}", "length": len(text.encode())}
            entry = [str(values[field]) for field, _ in abi().struct("metallib_gpu_code")._fields_]
            lines += [
                '.section .rodata.msl_gpu_text,"a"',
                f".Ltext{i}:",
                f'.incbin "{work}/{i}.ptx"',
                ".byte 0",
                f'.Lname{i}: .asciz "{name}"',
                '.section msl_gpu,"awR"',
                ".p2align 3",
                f".quad {', '.join(entry)}",
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


@dataclass(frozen=True)
class Usage:
    """The resources that one kernel takes of a GPU, as NVIDIA's assembler reports them."""

    kernel: str
    target: str
    registers: int
    stack_bytes: int
    spilled_bytes: int  # stores and loads together
    threadgroup_bytes: int


def ptxas() -> str:
    """NVIDIA's assembler: METAL_OPS_PTXAS, the PATH's, or that of the package nvidia-cuda-nvcc-cu12."""
    asked = os.environ.get("METAL_OPS_PTXAS") or shutil.which("ptxas")
    places = [Path(asked)] if asked else [
        Path(folder) / "nvidia" / "cuda_nvcc" / "bin" / "ptxas" for folder in sys.path
    ]  # fmt: skip
    for place in places:
        if os.access(place, os.X_OK):
            return str(place)
    raise CompileError(
        "metal: error: NVIDIA's assembler ptxas was not found; run 'pip install nvidia-cuda-nvcc-cu12' or set METAL_OPS_PTXAS"
    )


_FUNCTION = re.compile(
    r"Compiling entry function '(\S+)' for '(\S+)'\n.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads\n.*?Used (\d+) registers([^\n]*)",
    re.S,
)


def assemble(text: str, target: str) -> list[Usage]:
    """Assembles PTX, as the driver does when a pipeline is made, and reports the resources of each kernel.

    Function constants have no value here: their memory is there, and reads as zero.

    Raises:
      CompileError: with the assembler's messages.
    """
    text = re.sub(
        r"(?m)^\.extern \.global .*?\b(_msl_fc_\w+)(\[\d+\])?;",
        r".global .align 16 .b8 \1[32];",
        text,
    )
    # Hopper's own instructions, which no later GPU has: the driver asks for them kernel by kernel.
    own = "a" if "wgmma." in text else ""
    text = re.sub(rf"(?m)^\.target {target}$", f".target {target}{own}", text)
    said = _ptxas_says(text, f"{target}{own}")
    out = []
    for name, built, stack, stores, loads, registers, rest in _FUNCTION.findall(said):
        shared = re.search(r"(\d+) bytes smem", rest)
        kernel = re.sub(r"\$([0-9a-f]{2})", lambda m: chr(int(m[1], 16)), name.removeprefix("msl_"))
        out.append(
            Usage(
                kernel,
                built.removesuffix("a"),
                int(registers),
                int(stack),
                int(stores) + int(loads),
                int(shared[1]) if shared else 0,
            )
        )
    return out


def _ptxas_says(text: str, target: str) -> str:
    """The assembler's output, from the cache where it has seen this text: for all shaders it is minutes of work."""
    command = [ptxas(), f"-arch={target}", "-v"]
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True).stdout
    # By the text alone, not by the compiler that made it: most changes of that leave most kernels as they are.
    digest = hashlib.sha256("\0".join([version, *command[1:], text]).encode()).hexdigest()[:40]
    name = f"{digest}.ptxas"
    kept = cache.read(name)
    if kept is not None:
        return kept.decode()
    with tempfile.TemporaryDirectory(prefix="ptxas-") as folder:
        file = Path(folder) / "kernels.ptx"
        file.write_text(text)
        done = subprocess.run(
            [*command, str(file), "-o", str(Path(folder) / "out.cubin")],
            capture_output=True,
            text=True,
        )
    said = done.stdout + done.stderr
    if done.returncode:
        raise CompileError(f"metal: error: internal: ptxas failed for {target}\n{said}")
    cache.write(name, said.encode())
    return said


def report(usages: list[Usage]) -> str:
    """A table of them."""
    width = max([len(u.kernel) for u in usages] + [6])
    lines = [f"{'kernel':{width}}  target  registers  stack  spills  threadgroup memory"]
    for u in usages:
        lines.append(
            f"{u.kernel:{width}}  {u.target:6}  {u.registers:9}  {u.stack_bytes:5}  {u.spilled_bytes:6}  {u.threadgroup_bytes:18}"
        )
    return "\n".join(lines) + "\n"
