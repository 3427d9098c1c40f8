"""metal --explain: the instructions of a kernel's code, whether it is vectorised and why not, and its use of
NVIDIA's GPUs."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from . import cpu, gpu, ir, lanes, toolchain
from .compiler import Options, gpu_text, unit
from .reflection import Kernel
from .toolchain import CompileError
from .wrappers import wrappers

THREADS = 256  # of a threadgroup, for the occupancy, where the kernel allows as many
# By target: bytes of threadgroup memory of a multiprocessor. It has 64 warps, 65536 registers and 32 threadgroups at most.
SHARED = {"sm_80": 164 << 10, "sm_90": 228 << 10}
THREADS_LOOP = "<threads>"
_SPACES = {
    "global": "device and constant",
    "const": "constant",
    "shared": "threadgroup",
    "local": "thread (spilled, or arrays)",
    "param": "of parameters (grid, addresses, values)",
}
_ACCESS = re.compile(
    r"^\s*(?:@!?%p\d+ )?(ld|st|atom|red|cp\.async)((?:\.\w+)*?)\.(global|shared|const|local|param)((?:[.:]\w+)*)"
)
_WIDTH = re.compile(r"\.(?:pred|[busf](?:8|16|32|64|128)|f16x2|bf16)\b")
_KINDS = {
    "memory": "ld st ldu atom red cp prefetch tex".split(),
    "control": "bra ret call exit setp bar membar fence".split(),
    "conversion": "cvt cvta mov".split(),
}


@dataclass(frozen=True)
class Remark:
    """The vectoriser's remark about a loop.

    Attributes:
      done: whether it made vectors of it.
      place: `file:line:column` of the user's, or in words; THREADS_LOOP for the loop over the threads of a threadgroup.
    """

    done: bool
    place: str
    function: str
    text: str


def explain(file: str, options: Options, text: str | None = None) -> str:
    """A page of text about the kernels of one source.

    Args:
      file: its path, which messages name.
      text: its content, if not that of the file.

    Raises:
      CompileError: with the messages.
    """
    options = replace(options, validation=False, debug=False, coverage=False)
    one = unit(file, options, text)
    with tempfile.TemporaryDirectory(prefix="metal-") as folder:
        work = Path(folder)
        flags = one.flags(work)
        source, reflection, _ = one.read(flags)
        behind = wrappers(reflection).behind(source.text)
        constants = [c.name for c in reflection.constants]

        def prepared(more: list[str]) -> str:
            whole = cpu.front_end(behind, [*flags, *more])
            whole = ir.with_users_lines(ir.prepare(whole, constants))
            return ir.unchecked(ir.unaligned(whole))

        lined = lanes.by_fibers(prepared(["-gline-tables-only"]))
        assembly, remarks = _optimised(lined, one.target, work)
        meeting = ir.meeting(lined)
        why: dict[int, str] = {}
        loops: list[Remark] = []
        if meeting:
            modules, why = lanes.by_lanes(prepared([]), one.target)
            for module in modules:
                more, found = _optimised(module, one.target, work)
                assembly, loops = assembly + more, loops + found
    targets = options.gpu or gpu.TARGETS[:1]
    pages = [] if reflection.kernels else [f"{file} has no kernels\n"]
    ptx = {target: _ptx(file, options, text, target) for target in targets}
    for number, kernel in enumerate(reflection.kernels):
        lines = [f"{kernel.host_name} ({kernel.place.file}:{kernel.place.line})"]
        lines += _work(ptx[targets[0]], kernel, targets[0])
        if kernel.visible:
            lines.append("  processor: a function for tables, called thread by thread")
        elif number in meeting:
            lines += _meeting(number, why.get(number), loops)
        else:
            lines += _loop(number, remarks)
        lines.append(f"  {_size(assembly, number, one.target)}")
        lines += [line for target in targets for line in _occupancy(ptx[target], kernel, target)]
        pages.append("\n".join(lines) + "\n")
    return "\n".join(pages)


# ---- the processor


def _optimised(text: str, target: str, work: Path) -> tuple[str, list[Remark]]:
    """Assembly of a module, and the vectoriser's remarks."""
    record, out = work / "remarks.yaml", work / "out.s"
    command = [toolchain.clang(), "-x", "ir", "-O3", "-fPIC", "-S", "-w", "-fno-math-errno", "-"]
    command += [*toolchain.march(target), "-o", str(out), "-g0"]
    command += [
        f"-foptimization-record-file={record}",
        "-foptimization-record-passes=loop-vectorize",
    ]
    toolchain.run(command, "the optimiser", text)
    said = record.read_text() if record.exists() else ""
    return out.read_text(), list(_remarks(said))


def _remarks(text: str) -> Iterator[Remark]:
    """From LLVM's record, a document of YAML per remark."""
    for entry in re.sub(r"\n {6,}", " ", text).split("--- !")[1:]:
        kind, _, body = entry.partition("\n")
        function = re.search(r"^Function:\s+(\S+)", body, re.M)
        at = re.search(
            r"^DebugLoc:\s+\{ File: '?(.*?)'?,\s+Line: (\d+),\s+Column: (\d+) \}", body, re.M
        )
        words = re.findall(r"^  - \w+:\s+(?:'((?:[^']|'')*)'|([^\n]*))", body, re.M)
        said = "".join(quoted.replace("''", "'") or plain for quoted, plain in words)
        place = ""
        if at and "/msl/lib/" in at[1]:
            name = at[1].rpartition("/")[2]
            place = THREADS_LOOP if name == "runtime.h" else f"a library function ({name})"
        elif at:
            place = ":".join(at.groups()) if at[2] != "0" else at[1]
        yield Remark(kind == "Passed", place, function[1] if function else "", said)


def _of(number: int, function: str) -> bool:
    """Whether a function is made of a kernel."""
    return (
        re.search(rf"_msl_(?:inner|lanes|simdgroup|run|thread|K){number}(?!\d)", function)
        is not None
    )


def _loop(number: int, remarks: list[Remark]) -> list[str]:
    """A kernel whose threads do not meet: a loop over the threads of a threadgroup's row."""
    own = [r for r in remarks if _of(number, r.function)]
    threads = [r for r in own if r.place == THREADS_LOOP]
    done = next((r for r in threads if r.done), None)
    out = []
    if done:
        out.append(f"  processor: a loop over threads, vectorised: {_widths(done)}")
    else:
        out.append("  processor: a loop over threads, not vectorised")
        reasons = [r for r in own if _is_reason(r)]
        lines = dict.fromkeys(f"    {_placed(r)}{_reason(r)}" for r in reasons)
        out += list(lines)[:8] or [
            "    it has loops of its own, or is not a loop that a vector could be made of"
        ]
    inner = [r for r in own if r.done and r.place not in ("", THREADS_LOOP)]
    out += dict.fromkeys(f"    {r.place}: loop vectorised: {_widths(r)}" for r in inner)
    return out


def _placed(remark: Remark) -> str:
    return "" if remark.place in ("", THREADS_LOOP) else f"{remark.place}: "


def _is_reason(remark: Remark) -> bool:
    return (
        not remark.done and remark.text != "loop not vectorized" and "interleav" not in remark.text
    )


def _reason(remark: Remark) -> str:
    return re.sub(r"^loop not vectorized: ", "", remark.text)


def _widths(remark: Remark) -> str:
    found = re.search(r"vectorization width: (\d+), interleaved count: (\d+)", remark.text)
    return f"{found[1]} at once, {found[2]} such steps interleaved" if found else remark.text


def _meeting(number: int, why: str | None, remarks: list[Remark]) -> list[str]:
    """A kernel whose threads meet at barriers or simdgroup functions."""
    if why is not None:
        return [f"  processor: a fiber a thread, not vectorised: {why}"]
    own = [r for r in remarks if _of(number, r.function)]
    done = [r for r in own if r.done]
    widths = Counter(found[1] for r in done if (found := re.search(r"width: (\d+)", r.text)))
    said = ", ".join(f"{count} by {width}" for width, count in sorted(widths.items()))
    reasons = Counter(_reason(r) for r in own if _is_reason(r))
    out = [
        f"  processor: loops over the lanes of a simdgroup, {len(done)} of them vectorised ({said or 'none'})"
    ]
    return out + [f"    {count} not: {text}" for text, count in reasons.most_common(5)]


def _size(assembly: str, number: int, target: str) -> str:
    total = wide = 0
    # A function for tables has no wrapper: the last address of its description is its own.
    described = re.search(rf"_msl_kernel{number}:\n(.*?)\n\t\.size", assembly, re.S)
    run = re.findall(r"\.quad\t(\S+)", described[1])[-1:] if described else []
    for function in re.finditer(r"^(\S+):.*?\n(.*?)^\.Lfunc_end", assembly, re.M | re.S):
        if function[1] not in run and not _of(number, function[1].strip('"')):
            continue
        code = [line for line in function[2].split("\n") if re.match(r"\t[a-z]", line)]
        total += len(code)
        wide += sum(bool(re.search(r"%[yz]mm\d", line)) for line in code)
    return f"code for {target}: {total} instructions, {wide} of them on vectors of 256 bits or more"


# ---- GPUs


def _ptx(file: str, options: Options, text: str | None, target: str) -> str:
    """The kernels' text for a GPU; "" where GPUs cannot have one of them."""
    try:
        return gpu_text(file, options, text, target)
    except CompileError as error:
        if "GPU" not in str(error):
            raise
        return ""


def _body(ptx: str, kernel: Kernel) -> str:
    found = re.search(
        rf"^\.visible \.entry {re.escape(gpu.entry_name(kernel.host_name))}\(.*?^\}}",
        ptx,
        re.M | re.S,
    )
    return found[0] if found else ""


def _work(ptx: str, kernel: Kernel, target: str) -> list[str]:
    """A thread's instructions, and its bytes by address space."""
    body = _body(ptx, kernel)
    if not body:
        return []
    code = [m[1] for m in re.finditer(r"^\t(?:@!?%p\d+ )?([a-z][\w.:]*)", body, re.M)]
    code = [word for word in code if not word.startswith(".")]
    kinds = Counter(
        next((kind for kind, words in _KINDS.items() if word.split(".")[0] in words), "arithmetic")
        for word in code
    )
    said = ", ".join(
        f"{kinds[kind]} {kind}" for kind in ("arithmetic", "memory", "control", "conversion")
    )
    read: Counter[str] = Counter()
    written: Counter[str] = Counter()
    for line in body.split("\n"):
        if access := _ACCESS.match(line):
            bytes_ = _bytes(access[2] + access[4])
            if access[1] != "st":
                read[_SPACES[access[3]]] += bytes_
            if access[1] not in ("ld", "cp.async"):
                written[_SPACES[access[3]]] += bytes_
    out = [f"  a thread: {len(code)} instructions ({said})"]
    for verb, amounts in (("reads", read), ("writes", written)):
        if amounts:
            out.append(
                f"    {verb} " + ", ".join(f"{n} bytes {space}" for space, n in amounts.items())
            )
    return [*out, f"    each counted once, whatever a loop repeats, in PTX for {target}"]


def _bytes(words: str) -> int:
    count = int(m[1]) if (m := re.search(r"\.v([24])\b", words)) else 1
    width = _WIDTH.findall(words)
    bits = 32 if not width else 32 if "x2" in width[-1] else int(re.sub(r"\D", "", width[-1]) or 8)
    return count * bits // 8


def _occupancy(ptx: str, kernel: Kernel, target: str) -> list[str]:
    if kernel.visible:
        return [f"  NVIDIA {target}: no code, as GPUs do not have functions for tables here"]
    if not _body(ptx, kernel):
        return [f"  NVIDIA {target}: no code, as the source has what GPUs do not have here"]
    try:
        used = next(u for u in gpu.assemble(ptx, target) if u.kernel == kernel.host_name)
    except CompileError as error:
        return [f"  NVIDIA {target}: {str(error).removeprefix('metal: error: ')}"]
    threads = min(THREADS, kernel.max_threads)
    warps = (threads + 31) // 32
    per_warp = -(-used.registers * 32 // 256) * 256
    groups = {
        "warps": 64 // warps,
        "registers": 65536 // per_warp // 4 * 4 // warps,
        "threadgroup memory": SHARED[target] // (-(-used.threadgroup_bytes // 128) * 128 + 1024),
        "threadgroups": 32,
    }
    limit = min(groups, key=lambda name: groups[name])
    share = 100 * groups[limit] * warps / 64
    return [
        f"  NVIDIA {target}: {used.registers} registers, {used.stack_bytes} bytes of stack, {used.spilled_bytes} spilled, "
        f"{used.threadgroup_bytes} of threadgroup memory",
        f"    occupancy {share:.0f} % at {threads} threads a threadgroup, limited by {limit}",
    ]
