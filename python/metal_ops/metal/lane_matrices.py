"""Operations on simdgroup matrices, for lanes.py: work that all lanes do once, in blocks of their own.

A matrix is an array of a pair of elements that lies side by side with the other lanes' (lane_arrays.py): 64 elements in
a row. The library's functions (whole_matrix.h) load, multiply and store those. Uniform values, such as the place where
a matrix is loaded from, stay with them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from .lane_flow import Uniform, pure
from .lane_ir import MATRIX, Block, Fallback, Function, Instruction, named

SIDE_EFFECTS = frozenset("store atomicrmw cmpxchg fence".split())


@dataclass
class Operation:
    """A call of _msl_matrix.

    Attributes:
      pointers: d, a, b and c.
      bytes: A lane's part of each; 0 where that is no matrix.
      line: elements from row to row.
      turned: whether rows are columns.
      whole: the function that does it for all lanes.
      lane: the one for a lane.
    """

    pointers: list[str]
    bytes: list[int]
    line: str
    turned: str
    whole: str
    lane: str

    @property
    def multiplies(self) -> bool:
        """Whether lanes need each other's elements; else each may load and store its own."""
        return self.bytes[2] > 0

    @classmethod
    def of(cls, i: Instruction) -> Operation:
        words = [
            word.split(" ")[-1] for word in i.text[i.text.index("(") + 1 :].rstrip(")").split(", ")
        ]
        if len(words) != 10 or not words[6].isdigit() or words[8][0] != "@":
            raise Fallback("a simdgroup matrix that is not known before it is used")
        return cls(
            words[:4], list(int(words[6]).to_bytes(4, "little")), words[4], words[5], *words[8:]
        )


def array_of(function: Function, pointer: str) -> str:
    """The array that a pointer leads into."""
    while pointer in function.defs:
        i = function.defs[pointer][1]
        if i.operation == "alloca":
            return pointer
        if i.operation != "getelementptr":
            break
        pointer = i.uses[0]
    raise Fallback("a simdgroup matrix that is one of several")


def whole(i: Instruction, number: int, function: Function) -> list[str]:
    """The call for all lanes of %msl.mask, in code for lane %msl.l; `number` is that of the call there."""
    operation = Operation.of(i)
    lines, arguments = [], []
    for n, (pointer, size) in enumerate(zip(operation.pointers, operation.bytes, strict=True)):
        if size:
            if function.arrays.get(array_of(function, pointer), (0, 0))[1] != size:
                raise Fallback("a simdgroup matrix that does not lie with those of other lanes")
            stem = named(pointer, f".whole{number}.{n}")
            lines.append(f"{named(stem, '.back')} = mul nsw i64 %msl.l, -{size}")
            lines.append(f"{stem} = getelementptr i8, ptr {pointer}, i64 {named(stem, '.back')}")
            pointer = stem
        arguments.append(f"ptr {pointer}")
    arguments += [f"i64 {operation.line}", f"i32 {operation.turned}", "i32 %msl.mask"]
    return [*lines, f"call void {operation.whole}({', '.join(arguments)})"]


def of_lane(i: Instruction) -> str:
    """The call for lane %msl.lane."""
    operation = Operation.of(i)
    pointers = "".join(f"ptr {pointer}, " for pointer in operation.pointers)
    more = f"i64 {operation.line}, i32 {operation.turned}, i64 0, i32 %msl.lane"
    return f"call void {operation.lane}({pointers}{more}) alwaysinline"


class Apart:
    """The blocks of a function in which there are such operations, cut before and behind them.

    Args:
      function: becomes one where they are in blocks that are marked `whole`.
      all_: whether lanes load and store together, too, which they cannot where it is not known that they do at one time.
    """

    def __init__(self, function: Function, uniform: Uniform, all_: bool):
        self._function, self._uniform, self._all = function, uniform, all_
        self._leaky = False

    def cut(self) -> bool:
        """Whether there was anything to cut."""
        found = [
            block
            for block in self._function.blocks.values()
            if not block.whole and any(map(self._together, block.instructions))
        ]
        for block in found:
            self._cut(block)
        if found:
            self._function.index()
        return bool(found)

    def _together(self, i: Instruction) -> bool:
        return i.callee() == MATRIX and (self._all or Operation.of(i).multiplies)

    def _cut(self, block: Block) -> None:
        # Values of a loop that lanes leave at different times are kept by lane.
        self._leaky = self._uniform.in_leaky_loop(block.name)
        parts = self._parts(block)
        names = [block.name, *(named(block.name, f".part{n}") for n in range(1, len(parts)))]
        new: dict[str, Block] = {}
        for n, (code, whole_) in enumerate(parts):
            if n < len(parts) - 1:
                code = [*code, Instruction(None, f"br label %{names[n + 1]}", "br")]
            new[names[n]] = Block(names[n], code, whole=whole_)
        blocks = self._function.blocks
        for target in block.succs:
            for phi in (new if target == block.name else blocks)[target].phis:
                phi.text = re.sub(
                    rf", %{re.escape(block.name)} \]", lambda _: f", %{names[-1]} ]", phi.text
                )
        self._function.blocks = {
            name: part
            for old in blocks.values()
            for name, part in (new.items() if old is block else [(old.name, old)])
        }

    def _parts(self, block: Block) -> list[tuple[list[Instruction], bool]]:
        """The parts of a block, one behind the other: code and whether all of it is for all lanes at once."""
        code = block.instructions
        same = [self._same(block, i) for i in code]
        parts: list[tuple[list[Instruction], bool]] = []
        at = 0
        while at < len(code):
            end = at + 1
            while end < len(code) and same[end] == same[at]:
                end += 1
            here = code[at:end]
            is_whole = any(map(self._together, here))
            if parts and not is_whole and not parts[-1][1]:
                parts[-1] = [*parts[-1][0], *here], False
            else:
                parts.append((here, is_whole))
            at = end
        return parts

    def _same(self, block: Block, i: Instruction) -> bool:
        """Whether an instruction may be with such operations."""
        if self._together(i):
            return True
        if i.operation == "phi":  # they come first, all of them
            return not self._leaky and not self._uniform.divergent.intersection(
                p.result for p in block.phis
            )
        if self._leaky or i.operation in SIDE_EFFECTS:
            return False
        if i is block.end:
            phis = [p.result for s in block.succs for p in self._function.blocks[s].phis]
            return (
                i.operation != "ret"
                and block.name not in self._uniform.branches
                and not self._uniform.divergent.intersection(phis)
            )
        if i.operation == "call" and not pure(i):
            return False
        if " volatile " in i.text or " atomic " in i.text:
            return False
        # Where a matrix lies is computed wherever it is asked for.
        return i.result not in self._uniform.divergent or self._is_place(i)

    def _is_place(self, i: Instruction) -> bool:
        if i.operation != "getelementptr" or i.uses[0] not in self._function.defs:
            return False
        if any(use in self._uniform.divergent for use in i.uses[1:]):
            return False
        base = self._function.defs[i.uses[0]][1]
        return base.operation == "alloca" or self._is_place(base)
