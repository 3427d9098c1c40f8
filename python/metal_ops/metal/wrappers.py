"""Writes the C++ behind the shader: a class a kernel that takes its arguments out of the launch, and the tables."""

from __future__ import annotations

import re

from .reflect import Constant, Kernel, Reflection, data_type
from .toolchain import CompileError

_KIND = {
    "DEVICE": "METALLIB_DEVICE",
    "CONSTANT": "METALLIB_CONSTANT",
    "THREADGROUP": "METALLIB_THREADGROUP",
    "TEXTURE": "METALLIB_TEXTURE",
    "SAMPLER": "METALLIB_SAMPLER",
}


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
        parts.append(_kernel(number, kernel, positions, len(used)))
    return "".join(parts)


def _storage(constant: Constant) -> str:
    name = f"_msl_fcw_{constant.name}"
    return f'extern __thread unsigned char {name}[32] __asm__("{name}") __attribute__((visibility("hidden")));\n'


def _constants_table(used: list[Constant]) -> str:
    if not used:
        return ""
    rows = "".join(
        f"{{{_string(c.name)}, {c.index}u, {data_type(c.type_name)}u, {c.size}u, 0u}},\n"
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
    by_position = {a.position: a for a in kernel.arguments}
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
        if argument.kind in ("TEXTURE", "SAMPLER"):
            members.append(f"_msl_P<{i}> _msl_a{i};\n")
            made = f"texture<_msl_P<{i}>>" if argument.kind == "TEXTURE" else "sampler"
            initialisers.append(f"_msl_a{i}(_msl::{made}(_msl_l, {argument.index}))")
            calls.append(f"_msl_a{i}")
            parameters.append(f"_msl_P<{i}> _msl_{i}")
            continue
        object_type = f"_msl::pointee<{kind}>"
        if argument.kind == "THREADGROUP":
            source = f"_msl::threadgroup_argument(_msl_l, _msl_m, {argument.index})"
        else:
            source = f"_msl::buffer(_msl_l, {_KIND[argument.kind]}, {argument.index})"
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
        size = "0u, 0u"
        if a.kind not in ("TEXTURE", "SAMPLER"):
            pointee = f"_msl::plain<_msl::pointee<_msl_K{number}::_msl_P<{a.position}>>>"
            size = f"_msl::size_of<{pointee}>, _msl::align_of<{pointee}>"
        arguments.append(
            f"{{{_string(a.name)}, {_string(a.type_name)}, {_KIND[a.kind]}, {a.index}u, {' | '.join(flags) or '0u'}, "
            f"{size}, {enabled}}},\n"
        )
    table = (
        f"static const metallib_argument _msl_arguments{number}[] = {{\n{''.join(arguments)}}};\n"
        if arguments
        else ""
    )
    runner, scratch = (
        ("run_fibers", "fiber_scratch") if kernel.fibers else ("run_loop", "loop_scratch")
    )
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
static __attribute__((noinline)) void _msl_inner{number}(const metallib_launch* _msl_l, ulong _msl_first, ulong _msl_count, void* _msl_scratch) {{
_msl::{runner}<_msl_K{number}>(_msl_l, _msl_first, _msl_count, _msl_scratch);
}}
static void _msl_run{number}(const metallib_launch* _msl_l, ulong _msl_first, ulong _msl_count, void* _msl_scratch) {{
_msl_set_constants(_msl_l);
if (_msl_checked) _msl_guarded(_msl_l, _msl_first, _msl_count, _msl_scratch, {name}, &_msl_inner{number});
else _msl_inner{number}(_msl_l, _msl_first, _msl_count, _msl_scratch);
}}
{table}static const metallib_kernel _msl_kernel{number} = {{{name}, {"METALLIB_KERNEL_FIBERS" if kernel.fibers else "0"},
{kernel.max_threads}u, {kernel.static_bytes}u, {len(arguments)}u, {f"_msl_arguments{number}" if arguments else "nullptr"},
{n_constants}u, {"_msl_constants" if n_constants else "nullptr"}, &_msl::{scratch}<_msl_K{number}>, &_msl_run{number}}};
static const metallib_kernel* const _msl_entry{number} __attribute__((section("msl_kernels"), used)) = &_msl_kernel{number};
"""
