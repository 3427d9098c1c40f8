"""C++ behind the rewritten shader: a class per kernel that takes its arguments out of the launch, and the tables of
metallib_abi.h.

User macros must not reach it: every name starts with _msl or is the library's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import CompileError
from .reflection import Constant, Kernel, Reflection, constant_of, data_type
from .tensors import LaneMap

# Before a source of which some kernels are wanted. The front end makes nothing of an inline function that is not
# called, and only the type of a template's instances that are not used.
_SOME = """#undef kernel
#define kernel inline __attribute__((annotate("msl.kernel")))
#undef _MSL_INSTANCE_
#define _MSL_INSTANCE_(id, name, ...) _MSL_SECOND(_MSL_CAT(_MSL_WANTED_, id), _MSL_TYPE, ~)(id, __VA_ARGS__)
#define _MSL_SECOND(...) _MSL_SECOND_(__VA_ARGS__)
#define _MSL_SECOND_(a, b, ...) b
#define _MSL_TYPE(id, ...) extern decltype(__VA_ARGS__) _MSL_CAT(_msl_instance_, id)
#define _MSL_MADE(id, ...) static constexpr auto _MSL_CAT(_msl_instance_, id) = __VA_ARGS__
"""


BY_VALUE = ("TEXTURE", "SAMPLER", "TABLE", "TENSOR")  # kinds of arguments that are no addresses


@dataclass
class Wrappers:
    """The wrappers of one source.

    Attributes:
      head: The text that all kernels need.
      callees: how each kernel's function is named.
      code: By kernel, the text that runs it and describes it.
      tables: By kernel, its description, without its code (METALLIB_KERNEL_ABSENT).
    """

    head: str
    callees: list[str]
    code: list[str]
    tables: list[str]

    def behind(self, text: str) -> str:
        """The rewritten shader and the wrappers of all kernels."""
        return "".join([text, self.head, *self.code])

    def some(self, text: str, numbers: Sequence[int]) -> str:
        """The rewritten shader and the wrappers of these kernels alone."""
        found = [re.search(r"_msl_instance_(\d+)$", self.callees[number]) for number in numbers]
        wanted = [f"#define _MSL_WANTED_{match[1]} ~, _MSL_MADE\n" for match in found if match]
        return "".join([*wanted, _SOME, text, self.head, *(self.code[n] for n in numbers)])

    def described(self, text: str) -> str:
        """The rewritten shader and the descriptions of its kernels."""
        return "".join([_SOME, text, self.head, *self.tables])


def wrappers(reflection: Reflection) -> Wrappers:
    """The text behind a source.

    Raises:
      CompileError: an argument is enabled by a name that is no function constant.
    """
    used = [c for c in reflection.constants if c.index is not None]
    derived = [c for c in reflection.constants if c.index is None]
    head = ['\n# 1 "<kernel wrappers>"\n', *map(_storage, reflection.constants)]
    head += [_set_constants(used, derived), logging_constant(reflection)]
    if reflection.lane_map:
        head.append(LaneMap.named(reflection.lane_map).definition())
    # A condition derived from others has no position: the runtime takes the argument as optional.
    positions = {c.name: -1 for c in derived} | {c.name: i for i, c in enumerate(used)}
    out = Wrappers("".join(head), [kernel.callee for kernel in reflection.kernels], [], [])
    for number, kernel in enumerate(reflection.kernels):
        if kernel.visible:
            run = f"(decltype(metallib_kernel::run))&{kernel.callee}"
            out.code.append(_table(number, kernel, 0, "&_msl::no_scratch", run))
            out.tables.append(_table(number, kernel, 0))
            continue
        arguments = _arguments(number, kernel, positions) + _constants_table(number, kernel, used)
        own = f"_scratch{number}" if kernel.fibers else f"::loop_scratch<_msl_K{number}>"
        writes = logs(kernel, reflection)
        told = writes or reflection.debug
        table = _table(number, kernel, len(used), f"&_msl{own}", f"&_msl_run{number}", writes)
        out.code.append(_code(number, kernel, told, reflection) + arguments + table)
        absent = _table(number, kernel, len(used), logs=writes)
        out.tables.append(f"{_parameters(number, kernel)}}};\n{arguments}{absent}")
    return out


def logging_constant(reflection: Reflection) -> str:
    """Whether os_log writes anything: what the library's headers ask."""
    return f'extern "C" const int _msl_logging = {int(reflection.logging)};\n'


def logs(kernel: Kernel, reflection: Reflection) -> bool:
    """Whether a kernel may write messages: functions in tables may, too."""
    return reflection.logging and (kernel.logs or any(a.kind == "TABLE" for a in kernel.arguments))


def _string(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _storage(constant: Constant) -> str:
    name = f"_msl_fcw_{constant.name}"
    return f'extern __thread unsigned char {name}[32] __asm__("{name}") __attribute__((visibility("hidden")));\n'


def _constants_table(number: int, kernel: Kernel, used: list[Constant]) -> str:
    """The file's constants, in whose order a launch has their values, and their names in the kernel."""
    if not used:
        return ""
    rows = []
    for c in used:
        optional = c.name in kernel.asks
        flags = "METALLIB_CONSTANT_REQUIRED" if c.name in kernel.reads and not optional else "0u"
        if c.name not in kernel.reads | kernel.asks:
            flags = "METALLIB_CONSTANT_UNUSED"
        rows.append(
            f"{{.name = {_string(c.name)}, .index = {c.index}u, .data_type = {data_type(c.type_name)}u, "
            f".size = {c.size}u, .flags = {flags}}},\n"
        )
    return f"static const metallib_function_constant _msl_constants{number}[] = {{\n{''.join(rows)}}};\n"


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


def _code(number: int, kernel: Kernel, told: bool, reflection: Reflection) -> str:
    """The code that runs a kernel. `told`: messages or a debugger say which thread it is."""
    # A debugger finds static variables in functions that are called.
    inlined = "" if reflection.debug else "[[clang::always_inline]] "
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
        if argument.kind in BY_VALUE:
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
            # Constant memory is not written while the kernel runs: its loads may leave loops that store.
            restrict = (
                " __restrict" if argument.kind == "CONSTANT" and not argument.reference else ""
            )
            parameters.append(f"{kind}{restrict} _msl_{i}")
    class_ = f"_msl_K{number}"
    launch = "_msl_l, _msl_first, _msl_count, _msl_scratch"
    run = f"_msl::run_loop<{class_}, {int(told)}>({launch});"
    thread = ""
    if kernel.fibers:
        run = f"""if (_msl::by_lanes(_msl_l, _msl_by_lanes{number})) _msl::run_lanes<{class_}>({launch}, _msl_by_lanes{number}, &_msl_simdgroup{number});
else _msl::run_fibers<{class_}>({launch});"""
        thread = _THREAD.replace("NUMBER", str(number))
    name = _string(kernel.host_name)
    return f"""{_parameters(number, kernel)}const metallib_launch* _msl_l;
{"".join(members)}_msl_K{number}(const metallib_launch* _msl_l, char* _msl_m) : {", ".join(["_msl_l(_msl_l)", *initialisers])} {{ (void)_msl_m; }}
static inline __attribute__((always_inline)) void _msl_call({", ".join(parameters)}) {{
{inlined}{kernel.callee}({", ".join(inner)});
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
{f"_msl_log_in(_msl_l, {name});" * told}{"_msl_coverage();" * reflection.coverage}
if (_msl_checked) _msl_guarded(_msl_l, _msl_first, _msl_count, _msl_scratch, {name}, &_msl_inner{number});
else _msl_inner{number}(_msl_l, _msl_first, _msl_count, _msl_scratch);
}}
"""


def _arguments(number: int, kernel: Kernel, constants: dict[str, int]) -> str:
    """The table of a kernel's arguments."""
    arguments = []
    for a in kernel.arguments:
        flags = ["METALLIB_ARG_WRITTEN"] * a.written + ["METALLIB_ARG_REFERENCE"] * a.reference
        flags += ["METALLIB_ARG_UNUSED"] * (a.position not in kernel.used)
        flags += ["METALLIB_ARG_RESTRICT"] * a.restrict
        enabled = -1
        if a.enabled_by is not None:
            flags.append("METALLIB_ARG_OPTIONAL")
            name = constant_of(a.enabled_by)
            if name not in constants:
                raise CompileError(
                    f"{kernel.place.file}:{kernel.place.line}:{kernel.place.column}: error: argument '{a.name}' is "
                    f"enabled by '{a.enabled_by}', which is no function constant"
                )
            enabled = constants[name]
        size, alignment = "0u", "0u"
        if a.kind not in BY_VALUE:
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
    if not arguments:
        return ""
    return (
        f"static const metallib_argument _msl_arguments{number}[] = {{\n{''.join(arguments)}}};\n"
    )


def _parameters(number: int, kernel: Kernel) -> str:
    """The beginning of a kernel's class: the types of its parameters."""
    return f"""
struct _msl_K{number} {{
template <int _msl_i> using _msl_P = _msl::parameter<decltype({kernel.callee}), _msl_i>;
"""


def _table(
    number: int,
    kernel: Kernel,
    n_constants: int,
    scratch: str = "nullptr",
    run: str = "nullptr",
    logs: bool = False,
) -> str:
    """The description of a kernel, which makes it part of the library; without `run`, it has no code."""
    flags = ["METALLIB_KERNEL_FIBERS"] * kernel.fibers + [
        "METALLIB_KERNEL_VISIBLE"
    ] * kernel.visible
    flags += ["METALLIB_KERNEL_ABSENT"] * (run == "nullptr") + ["METALLIB_KERNEL_LOGS"] * logs
    flags += ["_MSL_MATH_FLAGS"]
    n_arguments = len(kernel.arguments)
    return f"""static const metallib_kernel _msl_kernel{number} = {{
.name = {_string(kernel.host_name)}, .flags = {" | ".join(flags)},
.max_total_threads = {0 if kernel.visible else kernel.max_threads}u, .static_threadgroup_bytes = {kernel.static_bytes}u,
.n_arguments = {n_arguments}u, .arguments = {f"_msl_arguments{number}" if n_arguments else "nullptr"},
.n_constants = {n_constants}u, .constants = {f"_msl_constants{number}" if n_constants else "nullptr"},
.scratch_size = {scratch}, .run = {run}}};
static const metallib_kernel* const _msl_entry{number} __attribute__((section("msl_kernels"), used)) = &_msl_kernel{number};
"""


# For a kernel with barriers: one lane, in C linkage as lanes.py looks for it, and the place of the simdgroup that it
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
