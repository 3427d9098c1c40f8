"""Sums of a thread as vectors of sums, for lanes.py: where many terms at once are added to an element of an array.

A thread that multiplies a row of its own adds 16 products to sums[n], iteration after iteration. The optimiser makes a
vector of the products, and adds that up in each iteration, if at all: where several sums have a factor in common it
leaves them to scalars. Here an element becomes as many sums as there are terms, which lie side by side: those are
vectors from the first load to the store, and are added up where the element is read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .lane_arrays import Arrays, into
from .lane_flow import Flow
from .lane_ir import Block, Fallback, Function, Instruction, named, replaced
from .lane_regions import Regions

_MOST_BYTES = 4096  # of such sums, a lane
_WIDTHS = (16, 8)  # sums of an element
# The order of terms is free, and so is the sign of a zero.
_ADD = re.compile(
    r"fadd (?P<how>(?:fast|reassoc nsz)(?: (?:arcp|contract|afn))*) float (\S+), (\S+)"
)
_LOAD = re.compile(r"load (float|i32), ptr (%(?:\"[^\"]+\"|[\w.$-]+))(?:, align \d+)?")
_STORE = re.compile(r"store (float|i32) (\S+), ptr (%(?:\"[^\"]+\"|[\w.$-]+))(?:, align \d+)?")


@dataclass
class _Addition:
    """Terms that are added to an element, and stored.

    Attributes:
      gone: the instructions that do so: a load, additions, and the store at last.
    """

    block: str
    how: str
    pointer: str
    terms: list[str]
    gone: list[Instruction]


@dataclass
class _Array:
    """An array whose elements can be sums.

    Attributes:
      width: how many sums an element becomes.
      bytes: of all of them.
      others: accesses that add nothing.
    """

    width: int
    bytes: int
    pointers: list[Instruction]
    others: list[Instruction]
    additions: list[_Addition]


def worth_a_look(text: str) -> bool:
    """Whether a thread's text may have any."""
    return len(re.findall(r"= fadd (?:fast|reassoc nsz) ", text)) >= min(_WIDTHS)


@dataclass
class _Cell:
    """A sum that lies in registers, from iteration to iteration of a loop.

    Attributes:
      values: one of which is the sum at any time.
      phis: those that are, by block.
      entering: blocks at whose ends it is set to something else, and that.
    """

    values: set[str]
    phis: dict[str, Instruction] = field(default_factory=dict)
    entering: dict[str, str] = field(default_factory=dict)


class Cells:
    """Sums that lie in registers and become variables, for Sums: loops whose terms are known were unrolled.

    Attributes:
      all: by the variable's name.
    """

    def __init__(self, function: Function):
        self._function, self._flow = function, Flow(function)
        self._users: dict[str, list[tuple[str, Instruction]]] = {}
        for block in function.blocks.values():
            for i in block.instructions:
                for use in i.uses:
                    self._users.setdefault(use, []).append((block.name, i))
        self.all: dict[str, _Cell] = {}
        # The outermost loop that adds to it.
        for header in sorted(self._flow.loops, key=lambda h: -len(self._flow.loops[h])):
            for phi in function.blocks[header].phis:
                known = any(phi.result in cell.values for cell in self.all.values())
                if phi.type() == "float" and phi.result and not known:
                    cell = self._of(phi.result, self._flow.loops[header])
                    if cell and self._one_at_a_time(cell):
                        self.all[named(phi.result, ".cell")] = cell

    def _of(self, start: str, body: set[str]) -> _Cell | None:
        """The form of a value inside of a loop; None if it is no sum of many terms at a time."""
        cell, ahead, sums = _Cell({start}), [start], 0
        while ahead:
            value = ahead.pop()
            home, i = self._function.defs[value]
            if i.operation == "phi":
                if home in cell.phis:
                    return None
                cell.phis[home] = i
            for block, user in self._users.get(value, ()):
                if block not in body:
                    continue
                if user.operation == "phi":
                    new = user.result or ""
                elif _ADD.fullmatch(user.text):
                    new = self._sum(block, user)
                    if len(self._terms(block, new)) <= min(_WIDTHS):
                        return None
                    sums += 1
                else:
                    continue
                if new not in cell.values:
                    cell.values.add(new)
                    ahead.append(new)
        for block, phi in cell.phis.items():
            for value, before in phi.incoming():
                if value not in cell.values:
                    if self._function.blocks[before].succs != [block]:
                        return None
                    cell.entering[before] = value
        return cell if sums else None

    def _sum(self, block: str, i: Instruction) -> str:
        """The sum of a block that an addition is a part of."""
        while True:
            users = self._users.get(i.result or "", [])
            if len(users) != 1 or users[0][0] != block or not _ADD.fullmatch(users[0][1].text):
                return i.result or ""
            i = users[0][1]

    def _terms(self, block: str, value: str) -> list[str]:
        terms, ahead = [], [value]
        while ahead:
            here = ahead.pop()
            home = self._function.defs.get(here)
            added = _ADD.fullmatch(home[1].text) if home and home[0] == block else None
            if added and (here == value or len(self._users[here]) == 1):
                ahead += [added[2], added[3]]
            else:
                terms.append(here)
        return terms

    def _one_at_a_time(self, cell: _Cell) -> bool:
        """Whether a variable would hold the used value, wherever it is."""
        starts: dict[str, str | None] = {}
        ends: dict[str, str | None] = {}
        for name in self._flow.order:
            if name in cell.phis:
                now = cell.phis[name].result
            else:
                known = {ends[b] for b in self._flow.preds[name] if b in ends}
                now = known.pop() if len(known) == 1 else None
            starts[name] = now
            for i in self._function.blocks[name].instructions:
                if i.operation != "phi":
                    if any(use in cell.values and use != now for use in i.uses):
                        return False
                    now = i.result if i.result in cell.values else now
            ends[name] = None if name in cell.entering else now
        for name in self._flow.order:
            for phi in self._function.blocks[name].phis:
                for value, before in phi.incoming():
                    if value in cell.values and ends.get(before) != value:
                        return False
            # From the end of a loop it comes back with the same.
            if name not in cell.phis and starts[name] is not None:
                if any(ends[b] != starts[name] for b in self._flow.preds[name]):
                    return False
        return True

    def to_memory(self, names: set[str]) -> None:
        """Makes sums variables of these names."""
        blocks, reads = self._function.blocks, 0
        for name in sorted(names & self.all.keys()):
            cell = self.all[name]

            def read(name: str = name) -> Instruction:
                nonlocal reads
                reads += 1
                return Instruction(named(name, f".read{reads}"), f"load float, ptr {name}", "load")

            for block in blocks.values():
                new: list[Instruction] = []
                for i in block.instructions:
                    if block.name in cell.phis and i is cell.phis[block.name]:
                        continue
                    for use in cell.values & set(i.uses) if i.operation != "phi" else ():
                        new.append(read())
                        i.text = replaced(i.text, use, new[-1].result or "")
                    new.append(i)
                    if i.result in cell.values:
                        text = f"store float {i.result}, ptr {name}"
                        new.append(Instruction(None, text, "store"))
                block.instructions = new
            for block in blocks.values():
                for phi in block.phis:
                    for value, before in phi.incoming():
                        if value in cell.values:
                            again = read()
                            blocks[before].instructions.insert(-1, again)
                            old = f"[ {value}, %{before} ]"
                            phi.text = phi.text.replace(old, f"[ {again.result}, %{before} ]")
            for end, value in cell.entering.items():
                store = Instruction(None, f"store float {value}, ptr {name}", "store")
                blocks[end].instructions.insert(-1, store)
            variable = Instruction(name, "alloca float, align 4", "alloca")
            blocks[self._function.entry].instructions.insert(0, variable)
            self._function.index()


class Sums:
    """The arrays of a function whose elements can be so many sums.

    Args:
      function: as it was read; in the end it has these.
      chosen: the names of those to make, all that can be if they are not given.
    """

    def __init__(self, function: Function, types: dict[str, str], chosen: set[str] | None = None):
        self._function = function
        cells = Cells(function)
        cells.to_memory(set(cells.all) if chosen is None else chosen)
        self._users: dict[str, int] = {}
        self._home: dict[int, Block] = {}
        for block in function.blocks.values():
            for i in block.instructions:
                self._home[id(i)] = block
                for use in i.uses:
                    self._users[use] = self._users.get(use, 0) + 1
        self._arrays = Arrays(function, types)
        self._names = 0
        self._all: dict[str, _Array] = {}
        for name, (_, i) in function.defs.items():
            if i.operation == "alloca" and (chosen is None or name in chosen):
                try:
                    array = self._of(name, i)
                except (Fallback, LookupError, ValueError):
                    continue
                if array:
                    self._all[name] = array

    def _of(self, name: str, alloca: Instruction) -> _Array | None:
        count, size, pointers, accesses = self._arrays.uses(name, alloca)
        if any(p in self._arrays.matrices for p in (name, *(i.result for i in pointers))):
            return None
        stores = [i for i in accesses if i.operation != "load"]
        additions = [found for i in stores if (found := self._addition(i, stores))]
        if size != 4 or not additions:
            return None
        gone = {id(i) for addition in additions for i in addition.gone}
        others = [i for i in accesses if id(i) not in gone]
        if not all(
            i.operation == "call" or _LOAD.fullmatch(i.text) or _STORE.fullmatch(i.text)
            for i in others
        ):
            return None
        for width in _WIDTHS:
            if all(len(a.terms) % width == 0 for a in additions):
                return _Array(width, count * width * size, pointers, others, additions)
        return None

    def _addition(self, store: Instruction, stores: list[Instruction]) -> _Addition | None:
        found = _STORE.fullmatch(store.text)
        if not found or found[1] != "float":
            return None
        block, pointer = self._home[id(store)], found[3]
        gone, terms, loads = [store], [], []
        how = ""
        ahead = [found[2]]
        while ahead:  # from the left, as they were written
            value = ahead.pop()
            home, i = self._function.defs.get(value, ("", store))
            if home == block.name and self._users[value] == 1:
                if added := _ADD.fullmatch(i.text):
                    gone.append(i)
                    how = added["how"]
                    ahead += [added[3], added[2]]
                    continue
                if (loaded := _LOAD.fullmatch(i.text)) and loaded.groups() == ("float", pointer):
                    loads.append(i)
                    continue
            terms.append(value)
        if len(loads) != 1 or len(terms) < min(_WIDTHS):
            return None
        # Nothing else is stored in between.
        places = {id(i): n for n, i in enumerate(block.instructions)}
        first, last = places[id(loads[0])], places[id(store)]
        if any(first < places.get(id(i), -1) < last for i in stores):
            return None
        return _Addition(block.name, how, pointer, terms, [*gone, *loads])

    def paying(self, flow: Flow, regions: Regions) -> set[str]:
        """The names of those that pay; `flow` and `regions` are those of the function without them."""
        names, left = set(), _MOST_BYTES
        for name, array in self._all.items():
            if array.bytes <= left and self._pays(array, flow, regions):
                names.add(name)
                left -= array.bytes
        return names

    def _pays(self, array: _Array, flow: Flow, regions: Regions) -> bool:
        """Whether a lane has vectors of its own where terms are added, iteration after iteration, and the sums are
        asked for elsewhere."""
        blocks = {addition.block for addition in array.additions}
        if not all(b in regions.of and regions.by_rows(regions.all[regions.of[b]]) for b in blocks):
            return False
        around = [body for body in flow.loops.values() if body & blocks]
        if not all(any(b in body for body in around) for b in blocks):
            return False
        near = {b for body in around for b in body if not any(other < body for other in around)}
        return not any(self._home[id(i)].name in near for i in array.others)

    def widen(self) -> None:
        """Makes them."""
        changed: dict[int, list[Instruction]] = {}
        for name, array in self._all.items():
            width = array.width
            self._function.sums[name] = width
            alloca = self._function.defs[name][1]
            kind = re.fullmatch(r"alloca (.*?)(?:, align \d+)?", alloca.text)
            assert kind
            alloca.text = f"alloca [{width} x {kind[1]}], align 64"
            for i in array.pointers:
                changed[id(i)] = into(i, *self._arrays.path(i), width)
            for i in array.others:
                changed[id(i)] = self._other(i, width)
            for addition in array.additions:
                self._tie(addition)
                changed |= {id(i): [] for i in addition.gone}
                changed[id(addition.gone[0])] = self._apart(addition, width)
        for block in self._function.blocks.values():
            block.instructions = [
                new for i in block.instructions for new in changed.get(id(i), [i])
            ]
        self._function.index()

    def _tie(self, addition: _Addition) -> None:
        """Leaves products as they are written: the optimiser would put the factors of each term in an order of its
        own, and a product of several is no vector then."""
        for term in addition.terms:
            i = self._function.defs[term][1] if term in self._function.defs else None
            if i and i.operation == "fmul":
                i.text = i.text.replace("fmul fast ", "fmul nnan ninf nsz arcp contract afn ", 1)
                i.text = i.text.replace("fmul reassoc ", "fmul ", 1)

    def _apart(self, addition: _Addition, width: int) -> list[Instruction]:
        """Terms added one by one to the sums of an element."""
        self._names += 1
        stem = named(addition.pointer, f".sum{self._names}")
        places, loads, sums, stores = [], [], [], []
        for n in range(width):
            at, value = (named(stem, f".{word}{n}") for word in ("at", "before"))
            text = f"getelementptr i8, ptr {addition.pointer}, i64 {4 * n}"
            places.append(Instruction(at, text, "getelementptr"))
            loads.append(Instruction(value, f"load float, ptr {at}, align 4", "load"))
            for turn, term in enumerate(addition.terms[n::width]):
                after = named(stem, f".after{turn}.{n}")
                sums.append(
                    Instruction(after, f"fadd {addition.how} float {value}, {term}", "fadd")
                )
                value = after
            stores.append(Instruction(None, f"store float {value}, ptr {at}, align 4", "store"))
        return [*places, *loads, *sums, *stores]

    @staticmethod
    def _other(i: Instruction, width: int) -> list[Instruction]:
        """A read of an element, which is the sum of its sums; or one that sets it."""
        if i.operation == "call":
            text = re.sub(r"i64 (\d+), i1", lambda m: f"i64 {int(m[1]) * width}, i1", i.text)
            return [Instruction(None, text, "call", i.metadata)]
        if found := _STORE.fullmatch(i.text):
            text = f"store <{width} x float> zeroinitializer, ptr {found[3]}, align 4"
            return [Instruction(None, text, "store"), i]
        found = _LOAD.fullmatch(i.text)
        assert found and i.result
        out: list[Instruction] = []

        def new(text: str, name: str) -> str:
            result = named(i.result or "", f".{name}{len(out)}")
            out.append(Instruction(result, text, text.split(" ", 1)[0]))
            return result

        value = new(f"load <{width} x float>, ptr {found[2]}, align 4", "sums")
        while width > 1:
            half, kind = width // 2, f"<{width} x float>"
            parts = []
            for first in (0, half):
                mask = ", ".join(f"i32 {first + n}" for n in range(half))
                parts.append(
                    new(
                        f"shufflevector {kind} {value}, {kind} poison, <{half} x i32> <{mask}>",
                        "half",
                    )
                )
            value = new(f"fadd reassoc nsz <{half} x float> {parts[0]}, {parts[1]}", "added")
            width = half
        text = f"extractelement <1 x float> {value}, i64 0"
        if found[1] == "float":
            return [*out, Instruction(i.result, text, "extractelement")]
        value = new(text, "sum")
        return [*out, Instruction(i.result, f"bitcast float {value} to i32", "bitcast")]
