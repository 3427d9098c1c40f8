"""The functions of a kernel's regions, for lanes.py: each runs one lane."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .lane_ahead import LINE, Ahead, Reads
from .lane_flow import Flow, Uniform, pure
from .lane_ir import CHEAP, MATRIX, Fallback, Function, Instruction, named
from .lane_matrices import SIDE_EFFECTS, of_lane, whole
from .lane_regions import Region, Regions

LANES = 32
_END = -1  # the exit of a region that ends the kernel
SLOT_WORDS = 12  # as sync.h has them: of a lane, each 32 words behind the last
# Attribute of values that are the same for all lanes of a simdgroup, as an argument.
_FIXED = {"%v0": "ptr", "%v1": "ptr"}
# Kept values, and slots.
_PLACE = re.compile(r"%msl\.(?:[fo]\d+|s)(?![\w.$-])")
# Calls that change nothing.
_HARMLESS = {"@_msl_slot", "@_msl_lane", "@llvm.threadlocal.address.p0"}


class RegionCode:
    """The functions of one kernel's regions.

    Args:
      symbol: the function to make.
      group: the number of the metadata that marks accesses that may be done for all lanes side by side.
    """

    def __init__(
        self,
        symbol: str,
        function: Function,
        flow: Flow,
        uniform: Uniform,
        regions: Regions,
        group: int,
        row: bool,
    ):
        self._symbol, self._function, self._uniform = symbol, function, uniform
        self._flow, self._regions, self._group, self._row = flow, regions, group, row
        self._number = {name: i for i, name in enumerate(regions.all)}
        # Types of kept values, each a variable of its own: values that all code of whole simdgroups reads and writes by
        # vectors can stay in registers, whatever happens to others.
        self._fields: list[str] = []
        self._shared: list[str] = []  # those of values that live once for all lanes
        self._places: dict[str, list[str]] = {}  # region -> variables that its function is given
        self._allocas: dict[
            str, tuple[int, str]
        ] = {}  # value -> the field, and where a lane's lies in it
        # Places of sums side by side: their addresses are used nowhere else, so that they may stay in registers.
        self._own: set[str] = set()
        self._kept: dict[
            str, tuple[int, str, bool]
        ] = {}  # value -> field, type, whether it is one for all lanes
        self._phis: dict[str, tuple[int, str, bool]] = {}  # phis at the entries of regions
        self._fixed = dict(_FIXED) | ({"%v4": "i32", "%v5": "i32"} if row else {})
        self._lane_fields: dict[str, int] = {}
        self._arguments: dict[str, list[str]] = {}  # region -> values that its function is given
        self._metadata: list[str] = []
        self._operations = 0
        ahead = Ahead(function, flow, uniform, regions)
        self._ahead: dict[str, Reads] = {
            name: ahead.of(region) for name, region in regions.all.items()
        }
        self._behind: dict[str, list[str]] = {}  # block -> addresses to prefetch the lines behind
        for region in regions.all.values():
            self._behind |= ahead.behind(region)
        self.attributes = "0"  # the number of those of every function
        self.halves = 0  # lanes of a vector, where float16 is converted by vectors

    # ---- what lives across regions

    def _field(self, kind: str, one: bool = False) -> int:
        fields = self._shared if one else self._fields
        fields.append(kind)
        return len(fields) - 1

    def _frame(self) -> None:
        of, defs = self._regions.of, self._function.defs
        for _, i in defs.values():
            if i.operation == "alloca":
                self._alloca(i)
        if not self._row and self._reads({"%v3", "%v4", "%v5"}):
            for name in ("%v3", "%v4", "%v5"):
                self._lane_fields[name] = self._field(f"[{LANES} x i32]")
        for entry in self._regions.all:
            for phi in self._function.blocks[entry].phis:
                assert phi.result
                one = phi.result not in self._uniform.divergent
                self._phis[phi.result] = (self._storage(phi.type(), one), phi.type(), one)
        wanted: set[str] = set()
        for region in self._regions.all.values():
            wanted |= self._from_elsewhere(region)
        readers: dict[str, list[str]] = {}  # value -> blocks
        for b in self._function.blocks.values():
            for use in {use for x in b.instructions for use in x.uses}:
                readers.setdefault(use, []).append(b.name)
        for value in sorted(wanted):
            block, i = defs[value]
            one = value not in self._uniform.divergent
            if one:  # unless lanes leave a loop with different ones
                one = not any(
                    self._uniform.reads(name, value)
                    for name in readers.get(value, ())
                    if of[name] != of[block]
                )
            self._kept[value] = (self._storage(i.type(), one), i.type(), one)
            self._own.discard(self._owner(value))  # its address is known by another name

    def _owner(self, pointer: str) -> str:
        """The place that an address leads into, if it is one of a variable."""
        defs = self._function.defs
        while pointer in defs and defs[pointer][1].operation == "getelementptr":
            pointer = defs[pointer][1].uses[0]
        return f"%msl.f{self._allocas[pointer][0]}" if pointer in self._allocas else ""

    def _reads(self, values: set[str]) -> bool:
        return any(
            values & set(i.uses) for b in self._function.blocks.values() for i in b.instructions
        )

    def _alloca(self, i: Instruction) -> None:
        found = re.fullmatch(r"alloca (.*?)(?:, align (\d+))?", i.text)
        assert found and i.result
        kind, align = found[1], int(found[2] or 1)
        if i.result in self._function.arrays:
            count, size = self._function.arrays[i.result]
            lanes = f"{{ [{count} x [{LANES} x i{8 * size}]], [0 x <64 x i8>] }}"
            self._allocas[i.result] = self._field(lanes), "i32 0, i64 0, i64 %msl.l"
            return
        if (
            ", i" in kind.rsplit("]", 1)[-1]
            or self._function.defs[i.result][0] != self._function.entry
        ):
            raise Fallback("a local array of a size that is not known")
        # An array of no vectors: gives the alignment, and the size that goes with it.
        padded = (
            f"{{ {kind}, [0 x <{align} x i8>] }}"
            if align > 8
            else f"{{ {kind}, [0 x i{8 * align}] }}"
        )
        field = self._field(f"[{LANES} x {padded}]")
        self._allocas[i.result] = field, "i64 %msl.l, i32 0"
        if i.result in self._function.sums:
            self._own.add(f"%msl.f{field}")

    def _place(self, field: int, one: bool, lane: str) -> str:
        """The address of a kept value, of a lane if each has its own."""
        if one:
            return f"getelementptr {self._shared[field]}, ptr %msl.o{field}, i64 0"
        return f"getelementptr {self._fields[field]}, ptr %msl.f{field}, i64 0, i64 {lane}"

    def _storage(self, kind: str, one: bool) -> int:
        if kind[0] in "{[":
            raise Fallback("a struct is kept")
        memory = "i8" if kind == "i1" else kind
        if re.fullmatch(r"<\d+ x i1>", kind):
            raise Fallback("a vector of truths is kept")
        return self._field(memory if one else f"[{LANES} x {memory}]", one)

    def _anew(self, value: str, depth: int = 0) -> bool:
        """Whether a value that lanes do not share is computed anew in each region rather than kept."""
        if value in self._allocas or value not in self._function.defs:
            return True
        i = self._function.defs[value][1]
        if i.callee() in ("@_msl_slot", "@_msl_lane"):
            return True
        if value not in self._uniform.divergent or i.operation not in CHEAP or depth > 10:
            return False
        if self._uniform.in_leaky_loop(self._function.defs[value][0]):
            return False
        home = self._function.defs[value][0]
        return all(
            self._anew(u, depth + 1)
            if u in self._uniform.divergent
            else not self._uniform.reads(home, u)
            for u in i.uses
        )

    def _needs(self, region: Region) -> Iterable[str]:
        """Values that a region's code uses, those that phis of the next regions are set to among them."""
        yield from sorted(self._ahead[region.entry].leaves)
        inside = set(region.blocks)
        for name in region.blocks:
            block = self._function.blocks[name]
            for i in block.instructions:
                if i.operation == "phi" and name == region.entry:
                    continue
                yield from i.uses
            for target in block.succs:
                if target not in inside or target == region.entry:
                    for phi in self._function.blocks[target].phis:
                        yield from (
                            v for v, source in phi.incoming() if source == name and v in phi.uses
                        )

    def _from_elsewhere(self, region: Region) -> set[str]:
        """Values that are kept in the frame, of those that a region needs."""
        out: set[str] = set()
        ahead = [v for v in self._needs(region) if not self._is_own(v, region)]
        seen = set(ahead)
        while ahead:
            value = ahead.pop()
            if value not in self._function.defs or value in self._allocas:
                continue
            if self._anew(value):
                new = {u for u in self._function.defs[value][1].uses if u not in seen}
                seen |= new
                ahead += new
            else:
                out.add(value)
        return out

    def _is_own(self, value: str, region: Region) -> bool:
        home = self._function.defs.get(value)
        return (
            home is not None
            and self._regions.of[home[0]] == region.entry
            and value not in self._allocas
        )

    def _once(self, region: Region) -> bool:
        """Whether a region does the same in all lanes, and so is run once: it changes nothing but their shared
        values."""
        if region.meeting or region.splits:
            return False
        inside = set(region.blocks)
        for name in region.blocks:
            block = self._function.blocks[name]
            if name in self._uniform.branches:
                return False
            for i in block.instructions:
                if i.result in self._kept and not self._kept[i.result][2]:
                    return False
                if i.operation == "phi":
                    if name == region.entry and not self._phis[i.result or ""][2]:
                        return False
                elif i.operation == "call":
                    if not pure(i) and i.callee() not in _HARMLESS and not region.whole:
                        return False
                elif i.operation in SIDE_EFFECTS or " volatile " in i.text or " atomic " in i.text:
                    return False
            for target in block.succs:
                if target not in inside or target == region.entry:
                    if not all(
                        self._phis[phi.result or ""][2]
                        for phi in self._function.blocks[target].phis
                    ):
                        return False
        return True

    # ---- a region's function

    def _access(self) -> str:
        return f", !llvm.access.group !{self._group}"

    def _load(self, name: str, field: int, kind: str) -> list[str]:
        memory = "i8" if kind == "i1" else kind
        at = named(name, ".at")
        lines = [f"{at} = {self._place(field, False, '%msl.l')}"]
        if kind != "i1":
            return [*lines, f"{name} = load {memory}, ptr {at}{self._access()}"]
        byte = named(name, ".byte")
        return [
            *lines,
            f"{byte} = load i8, ptr {at}{self._access()}",
            f"{name} = trunc i8 {byte} to i1",
        ]

    def _store(self, value: str, name: str, field: int, kind: str, one: bool) -> list[str]:
        at = named(name, ".at")
        lines = [f"{at} = {self._place(field, one, '%msl.l')}"]
        if kind == "i1":
            byte = named(name, ".byte")
            lines.append(f"{byte} = zext i1 {value} to i8")
            kind, value = "i8", byte
        return [*lines, f"store {kind} {value}, ptr {at}{self._access()}"]

    def _function_of(self, region: Region) -> str:
        number = self._number[region.entry]
        given: list[str] = []  # values that are one for all lanes: loaded before the loop over them
        head: list[str] = []
        have: set[str] = set()

        def bring(value: str) -> None:
            """Makes a value from elsewhere known to the function."""
            if value in have:
                return
            have.add(value)
            if value in self._fixed:
                given.append(value)
            elif value == "%v2":
                given.append("%msl.base")
                head.append("%v2 = add nuw nsw i32 %msl.base, %msl.lane")
            elif value == "%v3" and self._row:
                given.append("%v3")  # of lane 0
            elif value in self._lane_fields:
                head.extend(self._load(value, self._lane_fields[value], "i32"))
            elif value in self._allocas:
                field, at = self._allocas[value]
                kind = self._fields[field]
                head.append(f"{value} = getelementptr {kind}, ptr %msl.f{field}, i64 0, {at}")
            elif value in self._kept and not self._anew(value):
                field, kind, one = self._kept[value]
                if one:
                    given.append(value)
                else:
                    head.extend(self._load(value, field, kind))
            else:
                i = self._function.defs[value][1]
                for use in i.uses:
                    bring(use)
                head.append(f"{value} = {self._written(i, region)}")

        entry = self._function.blocks[region.entry]
        for phi in entry.phis:
            assert phi.result
            field, kind, one = self._phis[phi.result]
            if one:
                given.append(phi.result)
            else:
                head.extend(self._load(phi.result, field, kind))
            head.extend(self._keep(phi.result))
        for value in self._needs(region):
            if not self._is_own(value, region):
                bring(value)
        self._early, at_start = self._early_stores(region)
        head += at_start
        body: list[str] = []
        edges: list[str] = []
        for name in region.blocks:
            body += self._block(region, name, edges)
        self._arguments[region.entry] = given
        parameters = "".join(
            f", {self._type_of(v)} " + ("%msl.row" if v == "%v3" else v) for v in given
        )
        parameters += "".join(f", {i.type()} {i.result}" for i in self._loads(region))
        if region.whole:
            assert self._once(region)
            parameters += ", i32 %msl.mask"
        if "%v3" in given:
            head.insert(0, "%v3 = add nuw nsw i32 %msl.row, %msl.lane")
        lines = ["%msl.lane = trunc i64 %msl.l to i32", *head, f"br label %{region.entry}"]
        code = "".join(f"  {line}\n" for line in lines) + "\n".join(body + edges)
        places = list(dict.fromkeys(_PLACE.findall(code)))
        self._places[region.entry] = places
        given_places = "".join(
            f", ptr {'noalias ' * (place in self._own)}nocapture {place}" for place in places
        )
        return (
            f"define internal i32 {self._symbol}_{number}(i64 %msl.l{given_places}{parameters}) #{self.attributes} {{\nmsl.entry:\n"
            f"{code}\n}}\n"
        )

    def _loads(self, region: Region) -> list[Instruction]:
        """Loads of a simdgroup function's result for all lanes: made once, before the loop over them."""
        return [
            i
            for name in region.blocks
            for i in self._function.blocks[name].instructions
            if i.result in self._uniform.loads
        ]

    def _early_stores(self, region: Region) -> tuple[dict[str, list[str]], list[str]]:
        """The values of phis of the next regions, stored as soon as they are known: an unconditional store needs no
        mask. Where there are several ways to one region, that has to wait for the way that is taken."""
        inside = set(region.blocks)
        ways: dict[str, list[str]] = {}
        for name in region.blocks:
            for target in self._function.blocks[name].succs:
                if target not in inside or target == region.entry:
                    ways.setdefault(target, []).append(name)
        early: dict[str, list[str]] = {}
        at_start: list[str] = []
        self._stored: set[str] = set()
        for target, sources in ways.items():
            if len(sources) > 1:
                continue
            self._stored.add(target)
            for n, phi in enumerate(self._function.blocks[target].phis):
                assert phi.result
                value = next(v for v, source in phi.incoming() if source == sources[0])
                lines = self._store(
                    value, f"%msl.to{self._number[target]}.{n}", *self._phis[phi.result]
                )
                if self._is_own(value, region) and not (
                    value in self._phis and self._function.defs[value][0] == region.entry
                ):
                    early.setdefault(value, []).extend(lines)
                else:
                    at_start += lines
        return early, at_start

    def _type_of(self, value: str) -> str:
        if value in ("%msl.base", "%v3"):
            return "i32"
        if value in self._fixed:
            return self._fixed[value]
        return (
            self._phis[value][1]
            if value in self._phis and value not in self._kept
            else self._kind(value)
        )

    def _kind(self, value: str) -> str:
        return self._function.defs[value][1].type()

    def _keep(self, value: str) -> list[str]:
        """Puts a value where other regions find it, if any looks for it."""
        if value not in self._kept:
            return []
        return self._store(value, named(value, ".keep"), *self._kept[value])

    def _defined(self, value: str) -> list[str]:
        """The instructions after the definition of a value."""
        return self._keep(value) + self._early.get(value, [])

    def _written(self, i: Instruction, region: Region) -> str:
        callee = i.callee()
        if callee == "@_msl_slot":
            return "getelementptr i32, ptr %msl.s, i64 %msl.l"
        if callee == "@_msl_lane":
            return "add i32 %msl.lane, 0"
        if callee == MATRIX:
            if not region.whole:
                return of_lane(i)
            self._operations += 1
            return "\n  ".join(whole(i, self._operations, self._function))
        text = i.text
        if i.operation in ("load", "store"):
            text += self._access()
        return text + i.metadata

    def _block(self, region: Region, name: str, edges: list[str]) -> list[str]:
        block = self._function.blocks[name]
        inside = set(region.blocks)
        lines = [f"{name}:"]
        kept: list[str] = []
        for i in block.instructions[:-1]:
            if i.operation == "alloca":
                continue
            if i.operation == "phi":
                if name != region.entry:
                    lines.append(f"  {i.result} = {i.text}")
                    kept += self._defined(i.result or "")
                continue
            lines += [f"  {line}" for line in kept]
            kept = []
            if i.result not in self._uniform.loads:
                lines.append(
                    f"  {i.result} = {self._written(i, region)}"
                    if i.result
                    else f"  {self._written(i, region)}"
                )
            if i.result:
                lines += [f"  {line}" for line in self._defined(i.result)]
        lines += [f"  {line}" for line in kept]
        # At the end, where it does not lie between instructions that become one vector.
        for n, pointer in enumerate(self._behind.get(name, ())):
            line = "%" + named(name, f".line{n}")
            lines += [
                f"  {line} = getelementptr i8, ptr {pointer}, i64 {LINE}",
                f"  call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 3, i32 1)",
            ]
        end = block.end
        if end.operation == "ret":
            return [*lines, f"  ret i32 {_END}"]
        text = end.text
        for target in block.succs:
            if target in inside and target != region.entry:
                continue
            label = f"msl.edge{len(edges)}"
            text = re.sub(rf"label %{re.escape(target)}(?=[ ,\]]|$)", f"label %{label}", text)
            out = [f"{label}:"]
            for n, phi in enumerate(self._function.blocks[target].phis):
                assert phi.result
                if target in self._stored:
                    continue
                value = next(v for v, source in phi.incoming() if source == name)
                out += [
                    f"  {s}" for s in self._store(value, f"%{label}.{n}", *self._phis[phi.result])
                ]
            edges.append("\n".join([*out, f"  ret i32 {self._number[target]}"]))
        return [*lines, f"  {text}{end.metadata}"]
