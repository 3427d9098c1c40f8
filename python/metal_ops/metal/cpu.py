"""The compiler's code for this machine's processor: an ELF object, from the rewritten source and what is in it.

Behind the source comes C++: a class per kernel that takes its arguments out of the launch, and the tables of
metallib_abi.h.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import ir, lanes, toolchain
from .reflection import Constant, Kernel, Reflection, data_type
from .toolchain import CompileError

STACK_BYTES = 65536  # of a fiber; raised where a kernel's frames are larger
STACK_RESERVE = 16384  # for the C library's functions
KERNELS_PER_PART = (
    16  # that one optimiser has; not by the machine's cores, on which the object may not depend
)
# Of kernels whose threads meet, statements next to each other make vectors of at most 256 bits: LLVM 19 loses values where
# it gathers numbers for one of 512 (https://github.com/llvm/llvm-project/issues/117170 is of the kind; gemm_few's bfloat sums
# were wrong). Loops over lanes, and over what one thread has, are another pass's, which makes vectors of 512.
SHORT_SLP = ("-mllvm", "-slp-max-reg-size=256")


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def wrappers(reflection: Reflection) -> str:
    """C++ text to append to the rewritten shader. User macros must not reach it: every name starts with _msl or is
    the library's."""
    used = [c for c in reflection.constants if c.index is not None]
    derived = [c for c in reflection.constants if c.index is None]
    parts = ['\n# 1 "<kernel wrappers>"\n', *map(_storage, reflection.constants)]
    parts.append(_constants_table(used))
    parts.append(_set_constants(used, derived))
    # A condition derived from others has no position: the runtime takes the argument as optional.
    positions = {c.name: -1 for c in derived} | {c.name: i for i, c in enumerate(used)}
    for number, kernel in enumerate(reflection.kernels):
        made = (
            _visible(number, kernel)
            if kernel.visible
            else _kernel(number, kernel, positions, len(used))
        )
        parts.append(made)
    return "".join(parts)


def _storage(constant: Constant) -> str:
    name = f"_msl_fcw_{constant.name}"
    return f'extern __thread unsigned char {name}[32] __asm__("{name}") __attribute__((visibility("hidden")));\n'


def _constants_table(used: list[Constant]) -> str:
    if not used:
        return ""
    rows = "".join(
        f"{{.name = {_string(c.name)}, .index = {c.index}u, .data_type = {data_type(c.type_name)}u, .size = {c.size}u, "
        ".required = 0u},\n"
        for c in used
    )
    return f"static const metallib_function_constant _msl_constants[] = {{\n{rows}}};\n"


def _set_constants(used: list[Constant], derived: list[Constant]) -> str:
    lines = []
    for i, c in enumerate(used):
        lines.append(f"__builtin_memcpy(_msl_fcw_{c.name}, _msl_l->constants[{i}].bytes, 16);\n")
        lines.append(f"_msl_fcw_{c.name}[16] = _msl_l->constants[{i}].defined != 0;\n")
    for c in derived:
        scope = c.qualified.rsplit("::", 1)[0]
        lines.append(
            f"_msl::set_derived({c.qualified}, _msl_fcw_{c.name}, {scope}::_msl_derive_{c.name}());\n"
        )
    body = "".join(lines)
    # Not inlined: the values must be stored before anything reads them as constants.
    return (
        "static __attribute__((noinline)) void _msl_set_constants(const metallib_launch* _msl_l) {\n"
        f"(void)_msl_l;\n{body}}}\n"
    )


def _kernel(number: int, kernel: Kernel, constants: dict[str, int], n_constants: int) -> str:
    by_position = {a.position: a for a in kernel.arguments if a.element == 0}
    members, initialisers, calls, parameters, inner = [], [], [], [], []
    for i in range(kernel.n_parameters):
        kind = f"_msl_P<{i}>"
        if i in kernel.positions:
            calls.append(f"_msl::{kernel.positions[i]}<{kind}>(_msl_l, _msl_p)")
            parameters.append(f"{kind} _msl_{i}")
            inner.append(f"_msl_{i}")
            continue
        argument = by_position[i]
        inner.append(f"_msl_{i}")
        if argument.kind in ("TEXTURE", "SAMPLER", "TABLE"):
            members.append(f"_msl_P<{i}> _msl_a{i};\n")
            made = (
                "sampler" if argument.kind == "SAMPLER" else f"{argument.kind.lower()}<_msl_P<{i}>>"
            )
            initialisers.append(f"_msl_a{i}(_msl::{made}(_msl_l, {argument.index}))")
            calls.append(f"_msl_a{i}")
            parameters.append(f"_msl_P<{i}> _msl_{i}")
            continue
        object_type = f"_msl::pointee<{kind}>"
        if argument.kind == "THREADGROUP":
            source = f"_msl::threadgroup_argument(_msl_l, _msl_m, {argument.index})"
        else:
            source = f"_msl::buffer(_msl_l, METALLIB_{argument.kind}, {argument.index})"
        if argument.reference and argument.kind == "CONSTANT" and argument.enabled_by is None:
            members.append(f"_msl::Reference<_msl::plain<{object_type}>> _msl_a{i};\n")
            initialisers.append(f"_msl_a{i}({source})")
            calls.append(f"_msl_a{i}.get()")
            parameters.append(f"{kind} _msl_{i}")
        else:
            members.append(f"{object_type}* _msl_a{i};\n")
            initialisers.append(f"_msl_a{i}(({object_type}*){source})")
            calls.append(f"*_msl_a{i}" if argument.reference else f"_msl_a{i}")
            # Nobody writes to constant memory while the kernel runs: its loads may leave loops that store.
            restrict = (
                " __restrict" if argument.kind == "CONSTANT" and not argument.reference else ""
            )
            parameters.append(f"{kind}{restrict} _msl_{i}")
    arguments = []
    for a in kernel.arguments:
        flags = ["METALLIB_ARG_WRITTEN"] * a.written + ["METALLIB_ARG_REFERENCE"] * a.reference
        enabled = -1
        if a.enabled_by is not None:
            flags.append("METALLIB_ARG_OPTIONAL")
            name = re.sub(r".*::", "", a.enabled_by).strip()
            if name not in constants:
                raise CompileError(
                    f"{kernel.place.file}:{kernel.place.line}:{kernel.place.column}: error: argument '{a.name}' is "
                    f"enabled by '{a.enabled_by}', which is no function constant"
                )
            enabled = constants[name]
        size, alignment = "0u", "0u"
        if a.kind not in ("TEXTURE", "SAMPLER", "TABLE"):
            pointee = f"_msl::plain<_msl::pointee<_msl_K{number}::_msl_P<{a.position}>>>"
            size, alignment = f"_msl::size_of<{pointee}>", f"_msl::align_of<{pointee}>"
        name = _string(a.name)
        if a.members is not None:
            flags.append("METALLIB_ARG_MEMBERS")
            name += f' "\\0" {_string(a.members)}'
        arguments.append(
            f"{{.name = {name}, .type_name = {_string(a.type_name)}, .kind = METALLIB_{a.kind}, "
            f".index = {a.index}u, .flags = {' | '.join(flags) or '0u'}, .pointee_size = {size}, "
            f".pointee_alignment = {alignment}, .enabled_by = {enabled}}},\n"
        )
    table = (
        f"static const metallib_argument _msl_arguments{number}[] = {{\n{''.join(arguments)}}};\n"
        if arguments
        else ""
    )
    class_ = f"_msl_K{number}"
    launch = "_msl_l, _msl_first, _msl_count, _msl_scratch"
    run, scratch = f"_msl::run_loop<{class_}>({launch});", f"&_msl::loop_scratch<{class_}>"
    thread = ""
    if kernel.fibers:
        run = f"""if (_msl::by_lanes(_msl_l, _msl_by_lanes{number})) _msl::run_lanes<{class_}>({launch}, _msl_by_lanes{number}, &_msl_simdgroup{number});
else _msl::run_fibers<{class_}>({launch});"""
        scratch = f"&_msl_scratch{number}"
        thread = _THREAD.replace("NUMBER", str(number))
    name = _string(kernel.host_name)
    return f"""
struct _msl_K{number} {{
template <int _msl_i> using _msl_P = _msl::parameter<decltype({kernel.callee}), _msl_i>;
const metallib_launch* _msl_l;
{"".join(members)}_msl_K{number}(const metallib_launch* _msl_l, char* _msl_m) : {", ".join(["_msl_l(_msl_l)", *initialisers])} {{ (void)_msl_m; }}
static inline __attribute__((always_inline)) void _msl_call({", ".join(parameters)}) {{
[[clang::always_inline]] {kernel.callee}({", ".join(inner)});
}}
inline __attribute__((always_inline)) void operator()(const _msl::Position& _msl_p) const {{
(void)_msl_p;
_msl_call({", ".join(calls)});
}}
}};
{thread}static __attribute__((noinline)) void _msl_inner{number}(const metallib_launch* _msl_l, ulong _msl_first, ulong _msl_count, void* _msl_scratch) {{
{run}
}}
static void _msl_run{number}(const metallib_launch* _msl_l, ulong _msl_first, ulong _msl_count, void* _msl_scratch) {{
_msl_set_constants(_msl_l);
if (_msl_checked) _msl_guarded(_msl_l, _msl_first, _msl_count, _msl_scratch, {name}, &_msl_inner{number});
else _msl_inner{number}(_msl_l, _msl_first, _msl_count, _msl_scratch);
}}
{table}static const metallib_kernel _msl_kernel{number} = {{
.name = {name}, .flags = {"METALLIB_KERNEL_FIBERS" if kernel.fibers else "0"},
.max_total_threads = {kernel.max_threads}u, .static_threadgroup_bytes = {kernel.static_bytes}u,
.n_arguments = {len(arguments)}u, .arguments = {f"_msl_arguments{number}" if arguments else "nullptr"},
.n_constants = {n_constants}u, .constants = {"_msl_constants" if n_constants else "nullptr"},
.scratch_size = {scratch}, .run = &_msl_run{number}}};
static const metallib_kernel* const _msl_entry{number} __attribute__((section("msl_kernels"), used)) = &_msl_kernel{number};
"""


def _visible(number: int, function: Kernel) -> str:
    return f"""
static const metallib_kernel _msl_kernel{number} = {{
.name = {_string(function.host_name)}, .flags = METALLIB_KERNEL_VISIBLE, .max_total_threads = 0u, .static_threadgroup_bytes = 0u,
.n_arguments = 0u, .arguments = nullptr, .n_constants = 0u, .constants = nullptr,
.scratch_size = &_msl::no_scratch, .run = (decltype(metallib_kernel::run))&{function.callee}}};
static const metallib_kernel* const _msl_entry{number} __attribute__((section("msl_kernels"), used)) = &_msl_kernel{number};
"""


# Of a kernel whose threads meet: one lane, in C linkage as lanes.py looks for it, and the place of the simdgroup that it
# makes of it; until then, kernels run by fibers.
_THREAD = """extern "C" const int _msl_by_lanesNUMBER __attribute__((visibility("hidden")));
extern "C" __attribute__((noinline, visibility("hidden"))) void _msl_threadNUMBER(const void* _msl_b, const _msl::Position* _msl_g, uint _msl_i, uint _msl_x, uint _msl_y, uint _msl_z) {
_msl::lane_body<_msl_KNUMBER>(_msl_b, _msl_g, _msl_i, _msl_x, _msl_y, _msl_z);
}
extern "C" __attribute__((noinline, visibility("hidden"))) void _msl_simdgroupNUMBER(const void* _msl_b, const _msl::Position& _msl_g, uint _msl_s) {
_msl_threadNUMBER(_msl_b, &_msl_g, _msl_s, 0, 0, 0);
}
static ulong _msl_scratchNUMBER(const metallib_launch* _msl_l) {
return _msl::meeting_scratch(_msl_l, _msl_by_lanesNUMBER);
}
"""


def front_end(text: str, reflection: Reflection, flags: list[str]) -> str:
    """The rewritten source and the wrappers of its kernels as IR; `flags` are all of clang's."""
    command = [*flags, "-w", "-x", "c++", "-", "-S", "-emit-llvm", "-Xclang"]
    return toolchain.run(
        [toolchain.clang(), *command, "-disable-llvm-passes", "-o", "-"],
        "the front end",
        text + wrappers(reflection),
    )


def compile_text(
    text: str,
    reflection: Reflection,
    flags: list[str],
    target: str,
    variants: Sequence[str],
    work: Path,
) -> bytes:
    """The rewritten source as a relocatable object; `flags` are all of clang's, `work` is a folder for files."""
    parts = ir.split(front_end(text, reflection, flags), KERNELS_PER_PART)
    names = [kernel.host_name for kernel in reflection.kernels]
    constants = [c.name for c in reflection.constants]
    return compile_parts(parts, names, constants, target, variants, work)


def compile_parts(
    parts: list[tuple[list[int], str]],
    names: Sequence[str],
    constants: list[str],
    target: str,
    variants: Sequence[str],
    work: Path,
) -> bytes:
    """Parts of a module, as ir.split cuts them, as one object; `names` are those of all of the module's kernels."""

    def back_end(i: int, variant: str, text: str) -> Path:
        out = work / f"{variant}{i}.o"
        # A kernel's name is marked once.
        if variant == variants[0]:
            text += ir.mark_names([names[number] for number in parts[i][0]])
        if variant == "checked":
            _back_end_checked(lanes.by_fibers(ir.checked(text)), target, out)
            return out
        text, cpu_ = ir.unchecked(text), target
        if variant == "wide":
            text, cpu_ = ir.wide(text, toolchain.attributes(toolchain.WIDE)), toolchain.WIDE
        by_lanes, _ = lanes.by_lanes(text, cpu_)
        _back_end(by_lanes, cpu_, out, SHORT_SLP if ir.meeting(text) else ())
        return out

    jobs = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for i, (_, part) in enumerate(parts):
            text = ir.unaligned(ir.prepare(part, constants))
            jobs += [pool.submit(back_end, i, variant, text) for variant in variants]
        objects = [job.result() for job in jobs]
    return _joined(objects, work)


def compile_tables(
    whole: ir.Pieces, numbers: Sequence[int], target: str, variants: Sequence[str], work: Path
) -> bytes:
    """What describes these kernels, without their code, as an object."""
    objects = []
    for variant in variants:
        if variant == "wide":
            continue  # of what has no code
        text = lanes.by_fibers(ir.prepare(whole.tables(numbers), []))
        text = ir.checked(text) if variant == "checked" else ir.unchecked(text)
        objects.append(work / f"tables_{variant}.o")
        command = [toolchain.clang(), "-x", "ir", "-O0", "-fPIC", "-c", "-w", "-"]
        toolchain.run(
            [*command, "-o", str(objects[-1]), *toolchain.march(target)], "the tables", text
        )
    return _joined(objects, work)


def _joined(objects: list[Path], work: Path) -> bytes:
    out = work / "out.air"
    toolchain.run([toolchain.linker(), "-r", *map(str, objects), "-o", str(out)], "the linker")
    return out.read_bytes()


def _back_end(text: str, target: str, out: Path, flags: Sequence[str]) -> None:
    """IR to object."""
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
        *toolchain.march(target),
    ]
    toolchain.run([*command, *flags, "-fno-math-errno", "-fstack-usage"], "the optimiser", text)
    _say_stack(out)


def _back_end_checked(text: str, target: str, out: Path) -> None:
    march = toolchain.march(target)
    common = [toolchain.clang(), "-x", "ir", "-fPIC", "-w", "-fno-math-errno", *march, "-"]
    light = toolchain.run([*common, "-O1", "-S", "-emit-llvm", "-o", "-"], "the optimiser", text)
    # What is left to do is instruction selection: a call before every access leaves little to optimise.
    command = [*common, "-O0", "-c", "-fstack-usage", "-o", str(out)]
    toolchain.run(command, "the checked variant", ir.instrument(light))
    _say_stack(out)


def _say_stack(out: Path) -> None:
    """Writes into an object the bytes of stack that a fiber of it needs."""
    size = max(STACK_BYTES, (_stack_needed(out) + 4095) // 4096 * 4096)
    mark = ir.STACK_MARK.to_bytes(8, "little")
    out.write_bytes(out.read_bytes().replace(mark, size.to_bytes(8, "little")))


def _stack_needed(out: Path) -> int:
    """The largest kernel, everything that could not be inlined into it (there is no recursion), and libm."""
    kernels, others = [0], [0]
    usage = out.with_suffix(".su")  # not written where no function is left
    for line in usage.read_text().splitlines() if usage.exists() else []:
        name, size, _ = line.rsplit("\t", 2)
        own = re.search("_msl_(?:K|inner|run|lanes|simdgroup)", name)
        (kernels if own else others).append(int(size))
    return max(kernels) + min(sum(others), 32 * max(others)) + STACK_RESERVE
