"""Prefetch in loops over barriers, for lanes.py: some iterations before the memory is read.

Simdgroups run one after the other up to a barrier. Where they share the iterations of a loop, each reads every n-th row
of memory, which processors do not foresee as they do one row behind the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .lane_flow import Flow, Uniform
from .lane_ir import CHEAP, Function, Instruction
from .lane_regions import SIDE_BY_SIDE, Region, Regions

TURNS = 4  # ahead
LINE = 64  # bytes that come from memory at a time
_MOST = 16  # lines that a region asks for at once
_POINTER = re.compile(r"ptr (%(?:\"[^\"]+\"|[\w.$-]+))(?:,|$)")
_COUNTER = re.compile(r"add (?:n[us]w )*(i\d+) (\S+), (\S+)")


@dataclass
class Reads:
    """The addresses that a region reads and that grow from iteration to iteration.

    Attributes:
      counters: a value that is the same in all lanes -> its increment per iteration.
      addresses: of a lane's reads, and how many bytes lie from lane to lane.
      body: the blocks of the loop.
      leaves: values from before it that the addresses are made of.
    """

    counters: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, int] = field(default_factory=dict)
    body: set[str] = field(default_factory=set)
    leaves: set[str] = field(default_factory=set)


class Ahead:
    """Finds them."""

    def __init__(self, function: Function, flow: Flow, uniform: Uniform, regions: Regions):
        self._function, self._flow, self._uniform = function, flow, uniform
        self._regions = regions

    def of(self, region: Region) -> Reads:
        """The reads of a region."""
        reads = Reads()
        around = [h for h, body in self._flow.loops.items() if region.entry in body]
        if not around or region.meeting or region.whole:
            return reads
        header = min(around, key=lambda h: len(self._flow.loops[h]))
        if header not in self._regions.all:
            return reads
        reads.counters = self._counters(header)
        if not reads.counters:
            return reads
        reads.body = body = self._flow.loops[header]
        bases, lines = set(), 0
        for name in region.blocks:
            for i in self._function.blocks[name].instructions:
                pointer = self._read(i)
                stride = self._regions.stride(i) if pointer else None
                if not pointer or not stride or stride < 0:
                    continue
                base = self._base(pointer, stride)
                leaves: set[str] = set()
                grows = self._grows(pointer, body, reads.counters, leaves)
                lines += -(-32 * stride // LINE)
                if grows and base not in bases and lines <= _MOST:
                    bases.add(base)
                    reads.addresses[pointer] = stride
                    reads.leaves |= leaves
        own = set(region.blocks)
        if header != region.entry and reads.addresses:
            reads.leaves |= reads.counters.keys()
        reads.leaves |= {step for step in reads.counters.values() if step[0] == "%"}
        defs = self._function.defs
        reads.leaves = {v for v in reads.leaves if v not in defs or defs[v][0] not in own}
        return reads

    def behind(self, region: Region) -> dict[str, list[str]]:
        """Where lanes have vectors of their own: block -> addresses that are read there, iteration after iteration,
        by many accesses in a row. The cache line after them is the beginning of a following lane's data, after all
        iterations of this one: a leap that no processor foresees."""
        out: dict[str, list[str]] = {}
        if region.meeting or region.whole or not self._regions.by_rows(region):
            return out
        for name in region.blocks:
            if any(name in body for body in self._flow.loops.values()):
                rows: dict[tuple[str, str], list[str]] = {}
                for i in self._function.blocks[name].instructions:
                    pointer = self._read(i)
                    if pointer and self._regions.stride(i) is None and not self._is_own(pointer):
                        rows.setdefault(self._regions.origin(pointer), []).append(pointer)
                found = [pointers[0] for pointers in rows.values() if len(pointers) >= SIDE_BY_SIDE]
                out[name] = found[:_MOST]
        return out

    @staticmethod
    def _read(i: Instruction) -> str:
        if i.operation != "load" or " volatile " in i.text or " atomic " in i.text:
            return ""
        found = _POINTER.search(i.text)
        return found[1] if found else ""

    def _base(self, pointer: str, stride: int) -> str:
        """The pointer that one lies a few bytes behind, less than the next lane's."""
        i = self._function.defs[pointer][1] if pointer in self._function.defs else None
        found = (
            re.fullmatch(r"getelementptr (?:\w+ )*i8, ptr (\S+), i64 (\d+)", i.text) if i else None
        )
        return found[1] if found and int(found[2]) < stride else pointer

    def _counters(self, header: str) -> dict[str, str]:
        block, body = self._function.blocks[header], self._flow.loops[header]
        latches = [p for p in block.preds if p in body]
        out = {}
        for phi in block.phis if len(latches) == 1 else ():
            following = next(v for v, source in phi.incoming() if source == latches[0])
            home = self._function.defs.get(following)
            found = _COUNTER.fullmatch(home[1].text) if home and home[0] in body else None
            if phi.result in self._uniform.divergent or not found or not phi.result:
                continue
            if phi.result in (found[2], found[3]):
                step = found[3] if found[2] == phi.result else found[2]
                outside = step[0] != "%" or (
                    step in self._function.defs and self._function.defs[step][0] not in body
                )
                if outside and not self._uniform.reads(header, step):
                    out[phi.result] = step
        return out

    def _is_own(self, value: str) -> bool:
        """Whether it is where an array of a lane lies, or its slot."""
        while value in self._function.defs:
            i = self._function.defs[value][1]
            if i.operation == "alloca" or i.callee() == "@_msl_slot":
                return True
            if i.operation != "getelementptr":
                break
            value = i.uses[0]
        return False

    def _grows(
        self, value: str, body: set[str], counters: dict[str, str], leaves: set[str]
    ) -> bool:
        """Whether an address, which is made of `leaves`, grows by the counters; not if it is made of anything else."""
        grows, ahead, seen = False, [value], set()
        while ahead:
            here = ahead.pop()
            if here in seen:
                continue
            seen.add(here)
            if here in counters:
                grows = True
            elif here in self._function.defs:
                block, i = self._function.defs[here]
                if i.operation == "alloca":
                    return False
                if block not in body:
                    if self._is_own(here):
                        return False
                    leaves.add(here)
                elif i.operation in CHEAP:
                    ahead += i.uses
                elif i.callee() != "@_msl_lane":
                    return False
            elif here not in ("%v0", "%v1", "%v2", "%v3", "%v4", "%v5"):
                return False
        return grows
