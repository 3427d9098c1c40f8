"""A kernel's thread cut into parallel regions, for lanes.py: the code from one barrier of the lanes to the next.

A region is entered at one block. Loops without barriers may be regions of their own too, so that each iteration is made
by all lanes, one next to the other, which a vector does in one step.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from .lane_flow import Flow, Uniform, postdominators
from .lane_ir import BARRIER, Fallback, Instruction, Unrollable, size_of

# Accesses that lie so many values from lane to lane are read and written together with those between, by vectors.
WIDEST = 8
# Addresses and indices that are others and constants.
_ELEMENT = re.compile(
    r"getelementptr (?:\w+ )*(?:[\w%.]+|\[\d+ x [\w%.]+\]), ptr (\S+?),(?: i\d+ 0,)? i\d+ (\S+)"
)
_ADDED = re.compile(
    r"(?:(?:zext|sext|trunc) (?:\w+ )*i\d+ (%\S+) to i\d+|(?:add|or) (?:\w+ )*i\d+ (%\S+), -?\d+)"
)
SIDE_BY_SIDE = 8  # accesses to one row, where a lane's vectors pay
_STEPS = {"@_msl_lane": 1, "@_msl_slot": 4}  # the steps of their results from lane to lane


@dataclass
class Region:
    """Blocks that a lane runs without looking at others.

    Attributes:
      entry: the block it begins at, which is its name too.
      exits: the regions that may follow; '' is the end of the kernel.
      splits: whether lanes may go on in different ones of them.
    """

    entry: str
    blocks: list[str] = field(default_factory=list)
    exits: list[str] = field(default_factory=list)
    splits: bool = False
    meeting: Instruction | None = None  # at its end
    whole: bool = False  # operations that all lanes do at once


class Regions:
    """The regions of a function.

    Attributes:
      all: by name, in reverse postorder.
      of: block -> region.
      between: region with lanes that part -> the regions until all have met again, in order, and where that is.
    """

    def __init__(self, flow: Flow, uniform: Uniform, types: dict[str, str]):
        self._flow, self._uniform, self._types = flow, uniform, types
        self._blocks = flow.function.blocks
        self._post: dict[str, str] | None = None
        needed = {flow.function.entry}
        for block in self._blocks.values():
            if block.meeting or block.whole:
                needed |= {block.name, *block.succs}
        optional = {h for h in flow.loops if self._profits(h)}
        while True:
            self._cut(needed | optional)
            wrong = self._part()
            if wrong is None:
                return
            name, why = wrong
            # Without the loops that stand in the way, the innermost first; then without any.
            near = {
                h for h in optional if h == name or name in flow.loops[h] or h in self._ahead(name)
            }
            if not optional:
                inside = [self._blocks[b] for body in flow.loops.values() for b in body]
                meet = any(block.meeting or block.whole for block in inside)
                raise (Unrollable if meet else Fallback)(why)
            optional -= near or optional

    def _ahead(self, name: str) -> set[str]:
        return set(self.between.get(name, ([], ""))[0])

    def _profits(self, header: str) -> bool:
        """Whether a loop is to be run iteration by iteration, all lanes side by side."""
        body = self._flow.loops[header]
        good = bad = 0
        for name in body:
            block = self._blocks[name]
            if block.meeting or block.whole:
                return False  # it is cut anyhow
            for i in block.instructions:
                if (
                    i.operation in ("atomicrmw", "cmpxchg")
                    or " atomic " in i.text
                    or " volatile " in i.text
                ):
                    return False  # their order is as it is
                if i.operation in ("load", "store"):
                    stride = self.stride(i)
                    good, bad = (good + 1, bad) if stride is not None else (good, bad + 1)
        return bad <= good

    def stride(self, access: Instruction) -> int | None:
        """Bytes from lane to lane, None if that is many or not known."""
        kind = access.type() if access.operation == "load" else access.text.split(" ", 2)[1]
        pointer = re.findall(r"ptr (%(?:\"[^\"]+\"|[\w.$-]+))", access.text)
        step = self._step(pointer[-1], 0) if pointer else None
        if step is None or kind[0] == "<":
            return None
        return step if abs(step) <= WIDEST * (self._size(kind) or 1) else None

    def _size(self, kind: str) -> int | None:
        try:
            return size_of(kind, self._types)[0]
        except (LookupError, Fallback):
            return None

    def _step(self, value: str, depth: int) -> int | None:
        """By how much a value grows from lane to lane; a guess that decides on speed alone."""
        if value not in self._uniform.divergent:
            return 0
        if value in ("%v2", "%v3"):
            return 1
        if value in self._flow.function.arrays:  # the next lane's element is next to this one's
            return self._flow.function.arrays[value][1]
        if depth > 16 or value not in self._flow.function.defs:
            return None
        i = self._flow.function.defs[value][1]
        if i.callee() in _STEPS:
            return _STEPS[i.callee()]
        words = re.findall(r"(?<=[ ,])(%(?:\"[^\"]+\"|[\w.$-]+)|-?\d+)(?=,|$)", i.text)
        operation = i.operation
        if operation == "phi":
            body = self._flow.loops.get(self._flow.function.defs[value][0], ())
            first = next(v for v, source in i.incoming() if source not in body)
            return self._step(first, depth + 1) if first[0] == "%" else 0
        if operation in ("zext", "sext", "trunc"):
            return self._step(i.uses[0], depth + 1) if i.uses else None
        if operation != "getelementptr":
            known = [self._step(w, depth + 1) if w[0] == "%" else 0 for w in words]
            steps = [step for step in known if step is not None]
            if len(steps) != 2 or len(known) != 2:
                return None
            number = None if words[1][0] == "%" else int(words[1])
            if operation in ("add", "or"):
                return steps[0] + steps[1]
            if operation == "sub":
                return steps[0] - steps[1]
            if operation == "and":
                return steps[0] or steps[1]
            if operation == "shl" and number is not None and 0 <= number < 64:
                return steps[0] << number
            if operation == "mul" and number is not None:
                return steps[0] * number
            return None
        found = re.fullmatch(
            r"getelementptr (?:(?:inbounds|nuw|nusw) )*(.+), ptr (\S+?)(, i\d+ 0)?, i\d+ (\S+)",
            i.text,
        )
        if not found:
            return None
        # With a zero before the index: into an array.
        kind = re.sub(r"^\[\d+ x (.*)\]$", r"\1", found[1]) if found[3] else found[1]
        size = self._size(kind)
        base, index = (self._step(v, depth + 1) if v[0] == "%" else 0 for v in (found[2], found[4]))
        if size is None or base is None or index is None:
            return None
        return base + index * size

    def by_rows(self, region: Region) -> bool:
        """Whether most of a region's reads and writes lie side by side for a lane, and far apart from lane to lane:
        a lane's vectors are better than vectors of lanes, which would be put together of as many accesses."""
        near, far = 0, Counter[tuple[str, str]]()
        for name in region.blocks:
            for i in self._blocks[name].instructions:
                if i.operation in ("load", "store"):
                    pointer = re.findall(r"ptr (%(?:\"[^\"]+\"|[\w.$-]+))", i.text)
                    stride = self.stride(i) if pointer else 0
                    if stride is None:
                        far[self.origin(pointer[-1])] += 1
                    elif stride:
                        near += 1
        return sum(n for n in far.values() if n >= SIDE_BY_SIDE) > near

    def origin(self, pointer: str) -> tuple[str, str]:
        """The base of an address at a constant offset: a pointer, and an index."""
        defs, index = self._flow.function.defs, ""
        while pointer in defs:
            i = defs[pointer][1]
            found = _ELEMENT.fullmatch(i.text)
            if not found or index and found[2][0] == "%":
                break
            pointer, index = found[1], found[2] if found[2][0] == "%" else index
        while index in defs:
            i = defs[index][1]
            found = _ADDED.fullmatch(i.text)
            if not found:
                break
            index = found[1] or found[2]
        return pointer, index

    def _cut(self, cuts: set[str]) -> None:
        while True:
            of: dict[str, str] = {}
            more = set()
            for name in self._flow.order:
                homes = {of[p] for p in self._flow.preds[name] if p in of}
                if name not in cuts and len(homes) > 1:
                    more.add(name)
                of[name] = name if name in cuts or len(homes) != 1 else homes.pop()
            for name in self._flow.order:
                if name not in cuts and any(of[p] != of[name] for p in self._flow.preds[name]):
                    more.add(name)
            if not more:
                break
            cuts = cuts | more
        self.of = of
        self.all = {name: Region(name) for name in self._flow.order if of[name] == name}
        for name in self._flow.order:
            self.all[of[name]].blocks.append(name)
        for region in self.all.values():
            self._exits(region)

    def _exits(self, region: Region) -> None:
        inside = set(region.blocks)
        for name in region.blocks:
            block = self._blocks[name]
            region.meeting = block.meeting  # then it is all that there is
            region.whole = block.whole
            targets = block.succs or ([""] if block.end.operation == "ret" else [])
            for target in targets:
                if target not in inside or target == region.entry:
                    if target not in region.exits:
                        region.exits.append(target)
        for name in region.blocks:
            if name in self._uniform.branches:
                if self._post is None:  # dear, and the same for all regions
                    self._post = postdominators(self._flow.order, self._flow.succs)
                if not self._joins_inside(name, self._post.get(name, ""), inside, region.entry):
                    region.splits = True
        if len(region.exits) < 2:
            region.splits = False

    def _joins_inside(self, name: str, join: str, inside: set[str], entry: str) -> bool:
        """Whether the paths from a branch join before any leaves the region."""
        if join not in inside or join == entry:
            return False
        ahead, seen = list(self._flow.succs[name]), set()
        while ahead:
            here = ahead.pop()
            if here == join or here in seen:
                continue
            if here not in inside or here == entry or not self._flow.succs[here]:
                return False
            seen.add(here)
            ahead += self._flow.succs[here]
        return True

    def _to_the_end(self, succs: dict[str, list[str]]) -> dict[str, list[str]]:
        """With the end of the kernel behind loops that lead nowhere else."""
        before: dict[str, list[str]] = {name: [] for name in succs}
        for name, targets in succs.items():
            for target in targets:
                before[target].append(name)
        ahead = [name for name in succs if not succs[name]]
        ending = set(ahead)
        while ahead:
            new = set(before[ahead.pop()]) - ending
            ending |= new
            ahead += new
        return {
            name: [*targets, ""] if name not in ending and "" in self.all[name].exits else targets
            for name, targets in succs.items()
        }

    def _part(self) -> tuple[str, str] | None:
        """Finds, for each region where lanes part, where they join again; returns one for which that is too
        difficult, and why."""
        self.between: dict[str, tuple[list[str], str]] = {}
        succs = {n: [e for e in r.exits if e] for n, r in self.all.items()}
        post = postdominators(self.all, self._to_the_end(succs))
        order = {name: i for i, name in enumerate(self.all)}
        for name, region in self.all.items():
            targets = succs[name]
            if not region.splits or len(targets) < 2:
                continue
            join = post.get(name, "")
            inside: set[str] = set()
            ahead = list(targets)
            while ahead:
                here = ahead.pop()
                if here != join and here not in inside:
                    inside.add(here)
                    ahead += succs[here]
            self.between[name] = (sorted(inside, key=order.__getitem__), join)
            for here in inside:
                meeting = self.all[here].meeting
                if meeting is not None and meeting.callee() == BARRIER:
                    return name, "a barrier that some threads may pass by"
                if any(order[s] <= order[here] and s != here for s in succs[here] if s in inside):
                    return name, "threads that go round a loop of meetings at different times"
            if name in inside and any(name in succs[h] for h in inside if h != name):
                return name, "threads that go round a loop of meetings at different times"
        return None
