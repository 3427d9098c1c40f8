"""Kernels with barriers, as loops over the lanes of a simdgroup instead of a fiber per thread.

clang -O1 makes one function of a thread (cpu.py's wrappers have it as _msl_thread<n>, its position an argument). It is
cut into parallel regions at the barriers (those of the source and functions over simdgroups), and each becomes a loop
over the 32 lanes, which the optimiser then vectorises. Values that live across regions are kept in arrays of one value
per lane, or once where they are uniform. The simdgroups of a threadgroup have a fiber each.

A kernel falls back to a fiber per thread where some lanes may pass by a barrier that others wait at, or go round a loop
of barriers at different times.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from . import ir, toolchain
from .abi import number as number_of
from .lane_arrays import Arrays
from .lane_driver import Simdgroup
from .lane_flow import Flow, Uniform
from .lane_ir import MATRIX, Fallback, Function, Instruction, Unrollable, named
from .lane_matrices import Apart
from .lane_regions import Regions
from .lane_sums import Sums, worth_a_look
from .lane_vectors import Vectors

LANES = 1  # values of _msl_by_lanes<n>, which 0 leaves to fibers
BARRIERS = 2
ROWS = 4  # as runtime.h has them
ALIGNED_ROWS = 8

# Short loops are unrolled as a whole, which leaves no arrays in memory, where lanes have them far apart; or not at all.
_UNROLL = "-unroll-threshold=400 -unroll-allow-partial=false -unroll-runtime=false".split()

_THREAD = re.compile(
    r"^define [^@\n]*void @_msl_thread(\d+)\([^\n]*\)([^\n]*) \{\n.*?^}\n", re.M | re.S
)
_MEETS = re.compile(r"@_msl_(?:barrier|simd|slot|lane|matrix)\(")
_APART = (
    "@_msl_matrices_apart = internal constant i32 0",
    "@_msl_matrices_apart = internal constant i32 1",
)
# Resolvers whose result all lanes have.
_SAME = re.compile(r"@_ZN4_msl(?:6reduceI.*Li32EEE|6ballotILi32EEE|5firstI.*Li32EEE)v")


def forced() -> bool:
    """Whether METAL_OPS_FIBERS asks for a fiber a thread in any case."""
    return os.environ.get("METAL_OPS_FIBERS", "0") not in ("", "0")


def by_fibers(text: str, kernels: set[int] | None = None) -> str:
    """Leaves kernels, all if none are named, to fibers. The others' constants stay without a value: the optimiser's
    present knowledge of them would hold whatever is found out about rows and barriers."""

    def decide(match: re.Match[str]) -> str:
        if kernels is not None and int(match[2]) not in kernels:
            return match[0]
        return f"{match[1]} = internal constant i32 0, align 4"

    return re.sub(r"(?m)^(@_msl_by_lanes(\d+)) = .*$", decide, text)


def by_lanes(text: str, target: str) -> tuple[list[str], dict[int, str]]:
    """Makes loops of all kernels that it can; returns modules that have the kernels between them, and why those that stay
    with fibers do, by their number."""
    numbers = {int(n) for n in re.findall(r"(?m)^@_msl_by_lanes(\d+) = ", text)}
    if not numbers or forced():
        return [by_fibers(text)], dict.fromkeys(numbers, "METAL_OPS_FIBERS is set")
    whole: ir.Pieces | None = None
    made: list[str] = []
    left: dict[int, Exception] = {}

    def rest(kernels: Iterable[int]) -> str:
        nonlocal whole
        whole = whole or ir.pieces(text)
        return whole.part(sorted(kernels))

    def lower(text: str, kernels: set[int], unrolled: bool) -> None:
        """Kernels, all of a text, in another form."""
        done, why = _Module(_lightly_optimised(text, target, unrolled)).transformed(kernels)
        made.extend([done] if done else [])
        for number in kernels:
            left.pop(number, None)
        left.update(why)

    lower(text, numbers, False)
    if not left:
        return made, {}
    # Values that a loop keeps in arrays may be the same for all lanes, which is seen where the loop is unrolled.
    if again := {number for number, why in left.items() if isinstance(why, Unrollable)}:
        lower(rest(again), again, True)
    # A struct in memory, as it has matrices, may decide where lanes go.
    for unrolled in (False, True):
        again = {n for n, why in left.items() if not unrolled or isinstance(why, Unrollable)}
        if again and (apart := rest(again).replace(*_APART)) != rest(again):
            lower(apart, again, unrolled)
    assert whole
    if stay := (whole.entries.keys() - numbers) | left.keys():
        made.append(by_fibers(whole.part(sorted(stay))))
    return made, {number: str(why) or repr(why) for number, why in left.items()}


def _lightly_optimised(text: str, target: str, unrolled: bool) -> str:
    """Everything that a thread calls in one function, and that simplified."""
    text = re.sub(r"(?m)^define internal (void @_msl_thread\d+\()", r"define hidden \1", text)
    # Not the callers of the simdgroups: those functions stay apart.
    keep = r"(?!.*@(?:_ZL?\d*)?_msl_(?:inner|run|set|simdgroup|scratch)\w*\()"
    apart = re.findall(r"(?m)^attributes #(\d+) = \{.*\b(?:noinline|optnone)\b.*\}$", text)
    keep += "".join(rf"(?!.*\) #{number}\b)" for number in apart)
    text = re.sub(
        rf"(?m)^(define internal {keep}.*\)) (#\d+(?: align \d+)? \{{)$",
        r"\1 alwaysinline \2",
        text,
    )
    # Loops around them are better not unrolled: each copy would be regions of its own, by the hundred in a kernel of attention,
    # and arrays lie such that an index which is the same for all lanes costs nothing (lane_arrays.py).
    text = re.sub(
        r"(?m)^(declare .*@_msl_(?:barrier|simd|matrix)\(.*\)) (#\d+)$",
        rf"\1 convergent {'' if unrolled else 'noduplicate '}\2",
        text,
    )
    text = re.sub(
        r"(?m)^(declare .*@_msl_(?:slot|lane)\(.*\)) (#\d+)$",
        r"\1 nounwind willreturn memory(none) \2",
        text,
    )
    command = [
        toolchain.clang(),
        "-x",
        "ir",
        "-O1",
        "-S",
        "-emit-llvm",
        "-fPIC",
        "-w",
        "-fno-math-errno",
        "-funroll-loops",
        *(word for option in _UNROLL for word in ("-mllvm", option)),
    ]
    return toolchain.run(
        [*command, "-o", "-", *toolchain.march(target), "-"], "the optimiser", text
    )


class _Module:
    """A module that is lightly optimised."""

    def __init__(self, text: str):
        self._text = text
        self._metadata = 1 + max(map(int, re.findall(r"(?m)^!(\d+) = ", text)), default=-1)
        self._attributes = 1 + max(
            map(int, re.findall(r"(?m)^attributes #(\d+) = ", text)), default=-1
        )
        # Functions with barriers, directly or not.
        bodies = dict(
            re.findall(r"^define [^@]*(@(?:\"[^\"]+\"|[\w.$-]+))\((.*?^})\n", text, re.M | re.S)
        )
        self.meets = {name for name, body in bodies.items() if _MEETS.search(body)}
        self._bodies = bodies
        wide = '"prefer-vector-width"="512"' in text
        self._halves = (16 if wide else 8) if "+f16c," in text else 0
        self._types = dict(re.findall(r"(?m)^(%\S+|%\"[^\"]+\") = type (\{.*\})$", text))

    def transformed(self, numbers: set[int]) -> tuple[str, dict[int, Exception]]:
        """The module with these kernels as loops, without those that cannot be; and why these cannot."""
        text, added, metadata = self._text, [], []
        left: dict[int, Exception] = {}
        group = self._metadata
        metadata.append(f"!{group} = distinct !{{}}")
        bound = {}
        attributes = None
        for match in _THREAD.finditer(self._text):
            number = int(match[1])
            if number not in numbers:
                continue
            found = re.search(r"#(\d+)", match[2])
            attributes = found[1] if found else None
            try:
                code, lines, by = self._kernel(number, match[0], group, group + len(metadata))
            except (Fallback, LookupError, ValueError, StopIteration, AssertionError) as why:
                left[number] = why
                continue
            bound[number] = by
            added.append(code)
            metadata += lines
        if not bound:
            return "", left
        if left:
            text = ir.pieces(text).part(sorted(bound))
        text = _THREAD.sub(
            lambda m: (
                "" if int(m[1]) in bound else m[0].replace("define hidden", "define internal", 1)
            ),
            text,
        )
        for number, by in bound.items():
            text = re.sub(rf"(?ms)^define [^@\n]*@_msl_simdgroup{number}\(.*?^}}\n", "", text)
            text = re.sub(
                rf"(?m)^(@_msl_by_lanes{number}) = .*$",
                rf"\1 = internal constant i32 {by}, align 4",
                text,
            )
            text = re.sub(
                rf"(?m)^(@\w*_msl_kernel{number} = .*?%struct\.metallib_kernel {{ ptr [^,]+, i32 )(\d+)",
                lambda m: f"{m[1]}{int(m[2]) | number_of('KERNEL_LANES')}",
                text,
            )
        own = re.search(rf"(?m)^attributes #{attributes} = {{(.*)}}$", text)
        quoted = " ".join(re.findall(r'"[^"]*"(?:="[^"]*")?', own[1])) if own else ""
        added.append(f"attributes #{self._attributes} = {{ nounwind {quoted} }}\n")
        for declaration in (
            "i32 @llvm.cttz.i32(i32, i1 immarg)",
            "void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)",
            "void @llvm.prefetch.p0(ptr, i32 immarg, i32 immarg, i32 immarg)",
            "void @_msl_simdgroup_barrier()",
        ):
            if not re.search(
                rf"(?m)^declare [^\n]*{re.escape(declaration.split(' ')[1].split('(')[0])}\(", text
            ):
                added.append(f"declare {declaration}\n")
        text = text.replace(
            "\n!llvm.module.flags", "\n" + "".join(added) + "\n!llvm.module.flags", 1
        )
        return text + "\n".join(metadata) + "\n", left

    def _kernel(
        self, number: int, text: str, group: int, metadata: int
    ) -> tuple[str, list[str], int]:
        function = Function(text, 6)
        for block in function.blocks.values():
            for i in block.instructions:
                if i.callee() in self.meets or (
                    i.operation == "call" and not i.callee() and "asm" not in i.text
                ):
                    raise Fallback(f"a call that is not inlined: {i.text[:80]}")
        reads = {u for b in function.blocks.values() for i in b.instructions for u in i.uses}
        position = bool(reads & {"%v3", "%v4", "%v5"})
        # Kernels that ask for x alone have threadgroups of one row: no code of their own for any others, which go by
        # fibers.
        rows = [True, False] if reads & {"%v4", "%v5"} else [True]
        lines: list[str] = []
        out: list[str] = []
        by, aligned = LANES, False
        for row in rows:
            symbol = f"@_msl_lanes{number}{'' if row else '_any'}"
            try:
                try:
                    flow, uniform, regions = _regions(text, row, self._types, True)
                except Fallback:
                    if MATRIX not in text:
                        raise
                    flow, uniform, regions = _regions(text, row, self._types, False)
            except Fallback:
                if row:
                    raise
                by |= ROWS | ALIGNED_ROWS * aligned  # others by fibers
                continue
            if row and uniform.asks_aligned:
                aligned = True
            function = flow.function
            code = Simdgroup(symbol, function, flow, uniform, regions, group, row)
            code.attributes = str(self._attributes)
            code.halves = self._halves
            written, more = code.text(metadata + len(lines))
            out.append(written)
            lines += more
        barriers = any(
            b.meeting and b.meeting.callee() == "@_msl_barrier" for b in function.blocks.values()
        )
        if position and len(rows) == 1:
            by |= ROWS | ALIGNED_ROWS * aligned
        both = len(rows) > 1 and not by & ROWS
        out.append(_entry(number, both, aligned, position, self._attributes))
        return "".join(out), lines, by | BARRIERS * barriers


def _regions(
    text: str, row: bool, types: dict[str, str], together: bool
) -> tuple[Flow, Uniform, Regions]:
    """The regions of a thread's text; `together`: lanes load and store simdgroup matrices together, too."""
    function = _arranged(Function(text, 6), types)
    flow, uniform, regions = _analysed(function, row, types, together)
    if worth_a_look(text):
        chosen = Sums(Function(text, 6), types).paying(flow, regions)
        if chosen:
            function = Function(text, 6)
            Sums(function, types, chosen).widen()
            flow, uniform, regions = _analysed(_arranged(function, types), row, types, together)
    if _inductions(function, flow, uniform, regions):
        return _analysed(function, row, types, together)
    return flow, uniform, regions


def _arranged(function: Function, types: dict[str, str]) -> Function:
    """With arrays where lanes have them, and without short vectors."""
    Arrays(function, types).place()
    Vectors(function).take_apart()
    return function


def _analysed(
    function: Function, row: bool, types: dict[str, str], together: bool
) -> tuple[Flow, Uniform, Regions]:
    flow = Flow(function)
    own = {"%v2", "%v3"} if row else {"%v2", "%v3", "%v4", "%v5"}
    uniform = Uniform(flow, own, _same_loads(function), row)
    if Apart(function, uniform, together).cut():
        flow = Flow(function)
        uniform = Uniform(flow, own, _same_loads(function), row)
    return flow, uniform, Regions(flow, uniform, types)


def _same_loads(function: Function) -> set[str]:
    """Loads of a simdgroup function's result, where all lanes get the same."""
    slots = {v for v, (_, i) in function.defs.items() if i.callee() == "@_msl_slot"}
    slots |= {  # and their other words
        v
        for v, (_, i) in function.defs.items()
        if i.operation == "getelementptr" and i.uses and i.uses[0] in slots and len(i.uses) == 1
    }
    out = set()
    for block in function.blocks.values():
        if not block.meeting or not _SAME.search(block.meeting.text):
            continue
        after = function.blocks[block.succs[0]]
        near = [after] + [
            function.blocks[s] for s in after.succs if function.blocks[s].preds == [after.name]
        ]
        for here in near:
            for i in here.instructions:
                if i.operation == "store" and set(i.uses) & slots:
                    break
                if i.operation == "load" and i.uses and i.uses[0] in slots and i.result:
                    out.add(i.result)
    return out


def _inductions(function: Function, flow: Flow, uniform: Uniform, regions: Regions) -> bool:
    """Counters that begin at the lane's own number: i = first + n, of which n is the same in all lanes."""
    changed = False
    for header, body in flow.loops.items():
        block = function.blocks[header]
        latches = [p for p in block.preds if p in body]
        if header not in regions.all or len(latches) != 1 or len(block.preds) != 2:
            continue
        for phi in block.phis:
            if phi.result not in uniform.divergent or not re.fullmatch(
                r"i(?:16|32|64)", phi.type()
            ):
                continue
            kind = phi.type()
            into = {source: value for value, source in phi.incoming()}
            next_ = into[latches[0]]
            first = next(value for source, value in into.items() if source != latches[0])
            home = function.defs.get(next_)
            if home is None or home[1].operation != "add" or home[0] not in body:
                continue
            found = re.fullmatch(r"add (?:n[us]w )*\S+ (\S+), (\S+)", home[1].text)
            if not found or phi.result not in found.groups():
                continue
            step = found[2] if found[1] == phi.result else found[1]
            if step[0] == "%" and (
                uniform.reads(header, step)
                or (step in function.defs and function.defs[step][0] in body)
            ):
                continue
            if step == phi.result:
                continue
            n, following = named(phi.result, ".n"), named(phi.result, ".following")
            outside = next(p for p in block.preds if p != latches[0])
            count = Instruction(
                n, f"phi {kind} [ 0, %{outside} ], [ {following}, %{latches[0]} ]", "phi"
            )
            place = block.instructions.index(phi)
            block.instructions[place] = count
            last = max(i for i, x in enumerate(block.instructions) if x.operation == "phi")
            block.instructions.insert(
                last + 1, Instruction(phi.result, f"add {kind} {first}, {n}", "add")
            )
            latch = function.blocks[latches[0]]
            latch.instructions.insert(-1, Instruction(following, f"add {kind} {n}, {step}", "add"))
            changed = True
    if changed:
        function.index()
    return changed


def _entry(number: int, both: bool, aligned: bool, position: bool, attributes: int) -> str:
    """The function that the scheduler calls: finds out which lanes there are, and where."""
    at = "".join(
        f"  %{name}.at = getelementptr i8, ptr %1, i64 {24 + 4 * i}\n  %{name} = load i32, ptr %{name}.at\n"
        for i, name in enumerate(("sx", "sy", "sz"))
    )
    place = ""
    if position:
        place = """  %x = urem i32 %base, %sx
  %row = udiv i32 %base, %sx
  %y = urem i32 %row, %sy
  %z = udiv i32 %row, %sy
"""
    call = f"call void @_msl_lanes{number}(ptr %0, ptr %1, i32 %s, i32 %mask, i32 "
    call += "%x, i32 %y, i32 %z)" if position else "0, i32 0, i32 0)"
    end = f"  {call}\n  ret void\n"
    if both:
        also = ""
        if aligned:
            also = """  %launch = load ptr, ptr %0
  %width.at = getelementptr i8, ptr %launch, i64 20
  %width = load i32, ptr %width.at
  %width.part = and i32 %width, 31
  %groups = icmp eq i32 %width.part, 0
"""
        end = f"""{also}  %part = and i32 %sx, 31
  %whole = icmp eq i32 %part, 0
  %line = icmp eq i32 %n, %sx
  %rows = or i1 %whole, %line
  %go = and i1 %rows, {"%groups" if aligned else "true"}
  br i1 %go, label %in.rows, label %anyhow
in.rows:
{end}anyhow:
  call void @_msl_lanes{number}_any(ptr %0, ptr %1, i32 %s, i32 %mask)
  ret void
"""
    return f"""define internal void @_msl_simdgroup{number}(ptr %0, ptr %1, i32 %2) #{attributes} {{
{at}  %s = and i32 %2, 31
  %base = shl nuw nsw i32 %s, 5
  %plane = mul i32 %sx, %sy
  %n = mul i32 %plane, %sz
  %left = sub i32 %n, %base
  %all = icmp uge i32 %left, 32
  %few = and i32 %left, 31
  %bit = shl i32 1, %few
  %less = sub i32 %bit, 1
  %mask = select i1 %all, i32 -1, i32 %less
{place}{end}}}
"""
