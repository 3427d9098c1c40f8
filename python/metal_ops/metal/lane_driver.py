"""The code of a simdgroup, for lanes.py: it calls the functions of its regions for all lanes.

They are inlined into loops over the 32 lanes, which LLVM makes vectors of, where all lanes take part; where some do not, they
are called for those that do.
"""

from __future__ import annotations

import re

from .lane_ahead import LINE, TURNS
from .lane_code import LANES, SLOT_WORDS, RegionCode
from .lane_ir import Unrollable, replaced, size_of
from .lane_regions import Region

# Flags of a value that may not hold some iterations later.
_NOTHING_ELSE = re.compile(r"\b(?:nuw|nsw|nusw|exact|disjoint|nneg|samesign|inbounds) ")
# Resolvers that are few instructions for whole simdgroups.
_BY_VECTORS = re.compile(r"^@_ZN4_msl6reduceI.*[fij]Li32EEE")
_ALL = "-1"  # the mask of a whole simdgroup
_HALVES = re.compile(r"fpext (?:\w+ )*half |fptrunc .* to half$")


def _moved(to: str, source: str, size: int) -> str:
    return f"call void @llvm.memcpy.p0.p0.i64(ptr align 4 {to}, ptr align 4 {source}, i64 {size}, i1 false)"


class Simdgroup(RegionCode):
    """The code of one kernel."""

    def text(self, first_metadata: int) -> tuple[str, list[str]]:
        """The functions, and lines of metadata, which are numbered from `first_metadata` on."""
        self._first_metadata = first_metadata
        self._frame()
        functions = [
            self._function_of(region) for region in self._regions.all.values() if not region.meeting
        ]
        self._fewer = self._with_fewer()
        loops = self._flow.loops.values()
        self._again = {name for name in self._places if any(name in body for body in loops)}
        # Values of regions that run again and again that live from iteration to iteration.
        self._living = {place for name in self._again for place in self._places[name]}
        if any(self._regions.all[name].meeting for name in self._fewer):
            drivers = self._driver(self._symbol, True, True)
        else:
            # Where all lanes come to a barrier whenever some do, code for a simdgroup of fewer is apart.
            drivers = self._driver(f"{self._symbol}_whole", True, False)
            drivers += self._driver(f"{self._symbol}_part", False, True)
            drivers += self._choice()
        return "".join(functions) + drivers, self._metadata

    def _with_fewer(self) -> set[str]:
        """The regions that lanes may come to when others have ended."""
        regions, between = self._regions.all, self._regions.between
        following = {
            name: [between[name][1]] if name in between else region.exits
            for name, region in regions.items()
        }
        ahead = [
            target
            for name, region in regions.items()
            if region.splits
            and any("" in regions[n].exits for n in (name, *between.get(name, ((), ""))[0]))
            for target in following[name]
        ]
        fewer: set[str] = set()
        while ahead:
            name = ahead.pop()
            if name and name not in fewer:
                fewer.add(name)
                ahead += following[name]
        return fewer

    def _choice(self) -> str:
        """The function for any simdgroup."""
        more = ", i32 %v3, i32 %v4, i32 %v5" if self._row else ""
        words = f"(ptr %v0, ptr %v1, i32 %msl.number, i32 %msl.mask{more})"
        return (
            f"define internal void {self._symbol}{words} #{self.attributes} {{\n"
            "  %all = icmp eq i32 %msl.mask, -1\n  br i1 %all, label %whole, label %part\n"
            f"whole:\n  call void {self._symbol}_whole{words}\n  ret void\n"
            f"part:\n  call void {self._symbol}_part{words}\n  ret void\n}}\n"
        )

    def _driver(self, symbol: str, whole: bool, part: bool) -> str:
        """The code for simdgroups that are `whole`, for those of which only a `part` is there, or for any."""
        self._whole, self._part = whole, part
        self._lines: list[str] = []
        self._more: dict[str, str] = {}
        self._temporaries = 0
        self._done: set[str] = set()
        self._start()
        ahead = [self._function.entry]
        while ahead:
            name = ahead.pop()
            if name in self._done:
                continue
            self._done.add(name)
            ahead += self._together(name)
        more = [f"  {name} = alloca {kind}, align 64" for name, kind in self._more.items()]
        lines = [self._lines[0], *more, *self._lines[1:]]
        return (
            f"define internal void {symbol}(ptr nocapture %v0, ptr nocapture %v1, i32 %msl.number, i32 %msl.mask"
            f"{', i32 %v3, i32 %v4, i32 %v5' if self._row else ''}) #{self.attributes} {{\n"
            + "\n".join(lines)
            + "\n}\n"
        )

    def _add(self, *lines: str) -> None:
        self._lines += [line if line.endswith(":") else f"  {line}" for line in lines]

    def _new(self) -> str:
        self._temporaries += 1
        return f"%t{self._temporaries}"

    def _start(self) -> None:
        self._add(
            "msl.start:",
            *(f"%msl.f{n} = alloca {kind}, align 64" for n, kind in enumerate(self._fields)),
            *(f"%msl.o{n} = alloca {kind}, align 8" for n, kind in enumerate(self._shared)),
            f"%msl.s = alloca [{SLOT_WORDS} x [{LANES} x i32]], align 64",
            f"%msl.states = alloca <{LANES} x i32>, align 128",
            "%msl.live = alloca i32",
            f"store i32 {'%msl.mask' if self._part else _ALL}, ptr %msl.live",
            "%msl.base = shl nuw nsw i32 %msl.number, 5",
        )
        # Lanes that are not there never take part.
        if self._lane_fields:
            self._positions()
        self._add(f"br label %together{self._number[self._function.entry]}")

    def _positions(self) -> None:
        """Where each lane is, in a group whose rows are no multiple of a simdgroup."""
        self._add("br label %positions", "positions:")
        self._add(
            "%p.l = phi i64 [ 0, %msl.start ], [ %p.next, %positions ]",
            "%p.l32 = trunc i64 %p.l to i32",
            "%p.i = add i32 %msl.base, %p.l32",
            "%p.sx.at = getelementptr i8, ptr %v1, i64 24",
            "%p.sx = load i32, ptr %p.sx.at",
            "%p.sy.at = getelementptr i8, ptr %v1, i64 28",
            "%p.sy = load i32, ptr %p.sy.at",
            "%p.x = urem i32 %p.i, %p.sx",
            "%p.rest = udiv i32 %p.i, %p.sx",
            "%p.y = urem i32 %p.rest, %p.sy",
            "%p.z = udiv i32 %p.rest, %p.sy",
        )
        for value, name in zip(("%p.x", "%p.y", "%p.z"), ("%v3", "%v4", "%v5"), strict=True):
            at = self._new()
            self._add(
                f"{at} = {self._place(self._lane_fields[name], False, '%p.l')}",
                f"store i32 {value}, ptr {at}",
            )
        self._add(
            "%p.next = add i64 %p.l, 1",
            f"%p.end = icmp eq i64 %p.next, {LANES}",
            "br i1 %p.end, label %positions.done, label %positions",
            "positions.done:",
        )

    def _call(
        self,
        region: Region,
        lane: str,
        given: list[str],
        how: str,
        copies: dict[str, tuple[str, int]] | None = None,
    ) -> str:
        """The call for a lane; `copies` stand for variables."""
        of = copies or {}
        places = [f"ptr {of.get(place, (place,))[0]}" for place in self._places[region.entry]]
        arguments = ", ".join((f"i64 {lane}", *places, *given))
        return f"call i32 {self._symbol}_{self._number[region.entry]}({arguments}) {how}"

    def _given(self, region: Region) -> list[str]:
        """Loads the arguments of a region's function."""
        out = []
        for value in self._arguments[region.entry]:
            if value == "%msl.base" or value == "%v3" or value in self._fixed:
                out.append(f"{self._type_of(value)} {value}")
                continue
            entry_phi = (
                value in self._phis
                and self._regions.of[self._function.defs[value][0]] == region.entry
            )
            field, kind, one = self._phis[value] if entry_phi else self._kept[value]
            assert one
            at, got = self._new(), self._new()
            self._add(f"{at} = {self._place(field, True, '')}")
            self._add(f"{got} = load {'i8' if kind == 'i1' else kind}, ptr {at}")
            if kind == "i1":
                truth = self._new()
                self._add(f"{truth} = trunc i8 {got} to i1")
                got = truth
            out.append(f"{kind} {got}")
        return out

    def _ask(self, region: Region) -> None:
        """Prefetches the memory that a region will read some iterations later."""
        reads = self._ahead[region.entry]
        made: dict[str, str] = {}

        def value(v: str) -> str:
            """The first lane's, at that time."""
            if v[0] != "%" or v in self._fixed or v == "%v3" and self._row:
                return v
            if v == "%v2":
                return "%msl.base"
            if v not in made:
                made[v] = later(v) if v in reads.counters else now(v)
            return made[v]

        def later(v: str) -> str:
            field, kind, _ = self._phis[v] if self._is_own(v, region) else self._kept[v]
            here, by, then = self._at(field, kind, v), self._new(), self._new()
            self._add(
                f"{by} = mul {kind} {value(reads.counters[v])}, {TURNS}",
                f"{then} = add {kind} {here}, {by}",
            )
            return then

        def now(v: str) -> str:
            if v in self._lane_fields:
                return self._at(self._lane_fields[v], "i32", "")
            block, i = self._function.defs[v]
            if block not in reads.body and not self._anew(v):
                return self._at(*self._kept[v][:2], v)
            if i.callee() == "@_msl_lane":
                return "0"
            text = _NOTHING_ELSE.sub("", i.text)
            for use in i.uses:
                text = replaced(text, use, value(use))
            got = self._new()
            self._add(f"{got} = {text}")
            return got

        for address, stride in reads.addresses.items():
            at = value(address)
            for line in range(0, LANES * stride, LINE):
                there = self._new()
                self._add(
                    f"{there} = getelementptr i8, ptr {at}, i64 {line}",
                    f"call void @llvm.prefetch.p0(ptr {there}, i32 0, i32 3, i32 1)",
                )

    def _at(self, field: int, kind: str, value: str) -> str:
        """The first lane's of a kept value."""
        one = value in self._phis and self._phis[value][2] and value not in self._kept
        one = one or value in self._kept and self._kept[value][2]
        at, got = self._new(), self._new()
        self._add(
            f"{at} = {self._place(field, one, '0')}",
            f"{got} = load {'i8' if kind == 'i1' else kind}, ptr {at}",
        )
        if kind != "i1":
            return got
        truth = self._new()
        self._add(f"{truth} = trunc i8 {got} to i1")
        return truth

    def _slots(self, region: Region, lane: str) -> list[str]:
        """Loads the results that a simdgroup function left for a lane, and for all others too."""
        out = []
        for i in self._loads(region):
            slot, got = self._new(), self._new()
            self._add(f"{slot} = getelementptr i32, ptr %msl.s, i64 {lane}")
            (pointer,) = i.uses
            at = self._function.defs[pointer][1]
            if at.operation == "getelementptr":  # to one of its other words
                word = self._new()
                self._add(f"{word} = {replaced(at.text, at.uses[0], slot)}")
                slot = word
            self._add(f"{got} = {replaced(i.text, pointer, slot)}")
            out.append(f"{i.type()} {got}")
        return out

    def _alone(self, region: Region, mask: str) -> str:
        """Runs a region that is the same for all lanes of a mask; returns the exit that they take."""
        bit, lane, n = (self._new() for _ in range(3))
        given = self._given(region)
        self._add(
            f"{bit} = call i32 @llvm.cttz.i32(i32 {mask}, i1 true)",
            f"{lane} = zext i32 {bit} to i64",
        )
        given += self._slots(region, lane)
        if region.whole:
            given.append(f"i32 {mask}")
        self._add(f"{n} = {self._call(region, lane, given, 'alwaysinline')}")
        return n

    def _lanes(self, region: Region, label: str, mask: str, states: bool) -> str:
        """Runs a region for the lanes of a mask; returns the exit that the last one took. `label` is new."""
        some = self._part or mask != _ALL
        self._ask(region)
        given = self._given(region)
        if self._whole and some:
            full = self._new()
            self._add(
                f"{full} = icmp eq i32 {mask}, -1",
                f"br i1 {full}, label %{label}.full, label %{label}.before",
            )
        else:
            self._add(f"br label %{label}.{'before' if some else 'full'}")
        ways = []
        if self._whole:
            ways.append(self._all(region, label, given, states))
        if some:
            ways.append(self._some(region, label, given, states, mask))
        n = self._new()
        self._add(f"{label}.end:", f"{n} = phi i32 {', '.join(ways)}")
        return n

    def _all(self, region: Region, label: str, given: list[str], states: bool) -> str:
        """The loop over all lanes; returns the exit of the last one, as a phi behind it has it."""
        loop, n, state = self._loop_metadata(region), self._new(), self._new()
        copies = {}
        if region.entry not in self._again:
            copies = {
                place: copy for place, copy in self._copied(region).items() if place in self._living
            }
        self._add(
            f"{label}.full:", *(_moved(copy, place, size) for place, (copy, size) in copies.items())
        )
        slots = self._slots(region, "0")
        self._add(
            f"br label %{label}.all",
            f"{label}.all:",
            f"%{label}.l = phi i64 [ 0, %{label}.full ], [ %{label}.l1, %{label}.all ]",
            f"{n} = {self._call(region, f'%{label}.l', given + slots, 'alwaysinline', copies)}",
        )
        if states:
            self._add(
                f"{state} = getelementptr i32, ptr %msl.states, i64 %{label}.l",
                f"store i32 {n}, ptr {state}{self._access()}",
            )
        self._add(
            f"%{label}.l1 = add nuw nsw i64 %{label}.l, 1",
            f"%{label}.c = icmp eq i64 %{label}.l1, {LANES}",
            f"br i1 %{label}.c, label %{label}.done, label %{label}.all, !llvm.loop !{loop}",
            f"{label}.done:",
            *(_moved(place, copy, size) for place, (copy, size) in copies.items()),
            f"br label %{label}.end",
        )
        return f"[ {n}, %{label}.done ]"

    def _some(self, region: Region, label: str, given: list[str], states: bool, mask: str) -> str:
        """The same for those of a mask, one by one."""
        n = self._new()
        copies = self._copied(region) if self._whole else {}
        self._add(
            f"{label}.before:",
            *(_moved(copy, place, size) for place, (copy, size) in copies.items()),
            f"br label %{label}.some",
            f"{label}.some:",
            f"%{label}.m = phi i32 [ {mask}, %{label}.before ], [ %{label}.m1, %{label}.some ]",
            f"%{label}.bit = call i32 @llvm.cttz.i32(i32 %{label}.m, i1 true)",
            f"%{label}.sl = zext i32 %{label}.bit to i64",
        )
        slots = self._slots(region, f"%{label}.sl")
        call = self._call(region, f"%{label}.sl", given + slots, "noinline", copies)
        self._add(f"{n} = {call}")
        if states:  # by a vector, as everywhere else
            old, new = self._new(), self._new()
            self._add(
                f"{old} = load <{LANES} x i32>, ptr %msl.states, align 128",
                f"{new} = insertelement <{LANES} x i32> {old}, i32 {n}, i64 %{label}.sl",
                f"store <{LANES} x i32> {new}, ptr %msl.states, align 128",
            )
        self._add(
            f"%{label}.less = add i32 %{label}.m, -1",
            f"%{label}.m1 = and i32 %{label}.m, %{label}.less",
            f"%{label}.c2 = icmp eq i32 %{label}.m1, 0",
            f"br i1 %{label}.c2, label %{label}.after, label %{label}.some",
            f"{label}.after:",
            *(_moved(place, copy, size) for place, (copy, size) in copies.items()),
            f"br label %{label}.end",
        )
        return f"[ {n}, %{label}.after ]"

    def _copied(self, region: Region) -> dict[str, tuple[str, int]]:
        """Variables that a region is given -> copies, and their bytes: those whose address a call has lie in memory,
        as do those that are read and written lane after lane."""
        copies = {}
        for place in self._places[region.entry]:
            if place == "%msl.s":
                continue
            kind = (self._shared if place[5] == "o" else self._fields)[int(place[6:])]
            if "{" not in kind:
                size = size_of(kind, {})[0]
                copies[place] = f"{place}.copy", size
                self._more[f"{place}.copy"] = kind
        return copies

    def _loop_metadata(self, region: Region) -> int:
        own = self._first_metadata + len(self._metadata)
        words = [f'"llvm.loop.parallel_accesses", !{self._group}', '"llvm.loop.unroll.disable"']
        # LLVM 19 takes conversions of more than 4 or 8 halves at a time for dear.
        if self.halves and self._has_halves(region):
            words.append(f'"llvm.loop.vectorize.width", i32 {self.halves}')
        if self._regions.by_rows(region):
            words.append('"llvm.loop.vectorize.enable", i1 false')
        elif region.entry in self._again:
            # Values that live from iteration to iteration can stay in registers, where the loop's few steps are
            # unrolled.
            last = own + len(words) + 2
            words.append(f'"llvm.loop.vectorize.followup_vectorized", !{last}')
            words.append('"llvm.loop.unroll.runtime.disable"')
        numbers = [own + 1 + n for n in range(len(words))]
        self._metadata.append(
            f"!{own} = distinct !{{!{own}, {', '.join(f'!{n}' for n in numbers)}}}"
        )
        self._metadata += [f"!{n} = !{{!{word}}}" for n, word in zip(numbers, words, strict=True)]
        return own

    def _has_halves(self, region: Region) -> bool:
        """Whether a region converts them, and all that it reads and writes lies side by side."""
        code = [i for name in region.blocks for i in self._function.blocks[name].instructions]
        return any(_HALVES.match(i.text) for i in code) and all(
            self._regions.stride(i) is not None for i in code if i.operation in ("load", "store")
        )

    def _in_state(self, name: str) -> str:
        """The lanes that wait for a region, as a mask."""
        loaded, same, mask = (self._new() for _ in range(3))
        number = self._number[name]
        vector = ", ".join([f"i32 {number}"] * LANES)
        self._add(
            f"{loaded} = load <{LANES} x i32>, ptr %msl.states, align 128",
            f"{same} = icmp eq <{LANES} x i32> {loaded}, <{vector}>",
            f"{mask} = bitcast <{LANES} x i1> {same} to i32",
        )
        return mask

    def _meet(self, region: Region, mask: str) -> None:
        meeting = region.meeting
        assert meeting
        if meeting.callee() == "@_msl_barrier":
            self._add("call void @_msl_simdgroup_barrier()")
            return
        found = re.search(
            r"\(i64 (?:noundef )?-?\d+, ptr (?:noundef )?(?:nonnull )?(@\S+?)\)", meeting.text
        )
        if not found:
            raise Unrollable("a simdgroup function that is not known before it is called")
        how = " alwaysinline" if mask == _ALL and _BY_VECTORS.search(found[1]) else ""
        self._add(f"call void {found[1]}(ptr %msl.s, i32 {mask}){how}")

    def _together(self, name: str) -> list[str]:
        """Code for a region that all lanes which are left come to; returns the regions that they go on to."""
        region = self._regions.all[name]
        label = f"together{self._number[name]}"
        some = self._part or name in self._fewer
        mask = self._new() if some else _ALL
        self._add(f"{label}:", *[f"{mask} = load i32, ptr %msl.live"] * some)
        if region.meeting:
            self._meet(region, mask)
            self._add(f"br label %together{self._number[region.exits[0]]}")
            return region.exits
        ends = "" in region.exits
        states = region.splits
        if self._once(region):
            n = self._alone(region, mask)
        else:
            self._add(f"br label %{label}.start", f"{label}.start:")
            n = self._lanes(region, label, mask, states)
        going = [e for e in region.exits if e]
        if region.splits and ends:
            self._drop(label, going)
        if not going:
            if not ends:
                self._add("unreachable")
            elif not (region.splits and ends):
                self._add("ret void")
            return []
        if name in self._regions.between:
            return self._apart(name, label)
        self._go(n, going, ends and not region.splits)
        return going

    def _drop(self, label: str, going: list[str]) -> None:
        """Lanes that are done leave."""
        loaded, alive, mask, old, left, none = (self._new() for _ in range(6))
        vector = ", ".join(["i32 -1"] * LANES)
        self._add(
            f"{loaded} = load <{LANES} x i32>, ptr %msl.states, align 128",
            f"{alive} = icmp sgt <{LANES} x i32> {loaded}, <{vector}>",
            f"{mask} = bitcast <{LANES} x i1> {alive} to i32",
            f"{old} = load i32, ptr %msl.live",
            f"{left} = and i32 {old}, {mask}",
            f"store i32 {left}, ptr %msl.live",
            f"{none} = icmp eq i32 {left}, 0",
            f"br i1 {none}, label %{label}.none, label %{label}.left",
            f"{label}.none:",
            "ret void",
            f"{label}.left:",
        )

    def _go(self, n: str, going: list[str], ends: bool) -> None:
        if len(going) == 1 and not ends:
            self._add(f"br label %together{self._number[going[0]]}")
            return
        cases = " ".join(f"i32 {self._number[e]}, label %together{self._number[e]}" for e in going)
        label = f"end{self._new()[1:]}"
        self._add(f"switch i32 {n}, label %{label} [ {cases} ]", f"{label}:")
        self._add("ret void" if ends else "unreachable")

    def _apart(self, name: str, label: str) -> list[str]:
        """Behind a region where lanes part: the regions until all have met, each for the lanes that are there."""
        between, join = self._regions.between[name]
        steps = [f"{label}.apart{i}" for i in range(len(between))] + [f"{label}.joined"]
        self._add(f"br label %{steps[0]}")
        dying = False
        for step, following, here in zip(steps, steps[1:], between, strict=False):
            region = self._regions.all[here]
            self._add(f"{step}:")
            mask, none = self._in_state(here), self._new()
            live, still = self._new(), self._new()
            # Lanes that were never there have a state too, that of an earlier lane there.
            self._add(
                f"{live} = load i32, ptr %msl.live",
                f"{still} = and i32 {mask}, {live}",
                f"{none} = icmp eq i32 {still}, 0",
                f"br i1 {none}, label %{following}, label %{step}.start",
                f"{step}.start:",
            )
            if region.meeting:
                self._meet(region, still)
                self._move(still, str(self._number[region.exits[0]]))
                self._add(f"br label %{following}")
                continue
            if self._once(region):
                self._move(still, self._alone(region, still))
            else:
                self._lanes(region, step, still, True)
            if "" in region.exits:
                dying = True
            self._add(f"br label %{step if here in region.exits else following}")
        self._add(f"{steps[-1]}:")
        if dying or not join:
            self._drop(steps[-1], [])
        if not join:
            self._add("unreachable")
            return []
        self._add(f"br label %together{self._number[join]}")
        return [join]

    def _move(self, mask: str, target: str) -> None:
        """Lanes of a mask go on to the region of a number."""
        loaded, bits, new, one, vector = (self._new() for _ in range(5))
        self._add(
            f"{one} = insertelement <{LANES} x i32> poison, i32 {target}, i64 0",
            f"{vector} = shufflevector <{LANES} x i32> {one}, <{LANES} x i32> poison, <{LANES} x i32> zeroinitializer",
            f"{loaded} = load <{LANES} x i32>, ptr %msl.states, align 128",
            f"{bits} = bitcast i32 {mask} to <{LANES} x i1>",
            f"{new} = select <{LANES} x i1> {bits}, <{LANES} x i32> {vector}, <{LANES} x i32> {loaded}",
            f"store <{LANES} x i32> {new}, ptr %msl.states, align 128",
        )
