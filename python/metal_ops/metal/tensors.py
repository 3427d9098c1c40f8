"""Tensors of Metal 4: which sources have them, and which lane has which element of a cooperative tensor.

The language leaves the second to the machine. HOSTMETAL_LANE_MAP chooses it when a source is compiled:

m5           fragments of 16 x 16, of which a lane has 4 neighbours in each of 2 rows, as on GPUs with tensor units
m1           fragments of 8 x 8, of which a lane has 2 neighbours, as simdgroup_matrix has them
random:SEED  m5 with lanes, elements, rows and columns exchanged by chance: a kernel that counts on one map fails
"""

from __future__ import annotations

import os
import random
import re
from dataclasses import dataclass

from .errors import CompileError

SINCE = (4, 0)
VARIABLE = "HOSTMETAL_LANE_MAP"
# Descriptors of products are arguments of templates, and tensors have subscripts of several indices.
FLAGS = ("-std=gnu++23", "-fno-char8_t", "-Wno-c99-designator", "-D_MSL_TENSORS")
LANES = 32

_NAMES = re.compile(
    r"\b(?:d?extents|tensor_(?:inline|handle|offset|ops)|cooperative_tensor|execution_(?:thread|simdgroup)s?)\b"
)


def used(flat: str, std: tuple[int, int]) -> bool:
    """Whether a source needs the tensors' part of the library."""
    return std >= SINCE and _NAMES.search(flat) is not None


def wanted() -> str:
    """The lane map that the environment asks for.

    Raises:
      CompileError: there is none of that name.
    """
    name = os.environ.get(VARIABLE) or "m5"
    if name not in ("m1", "m5") and not re.fullmatch(r"random:\d{1,9}", name):
        raise CompileError(
            f"metal: error: {VARIABLE}={name}: there is no such map of lanes; set m1, m5 or random:SEED, SEED a number of "
            "at most 9 digits"
        )
    return name


@dataclass(frozen=True)
class LaneMap:
    """Where the elements of lanes lie in a fragment.

    Attributes:
      side: rows and columns of a fragment.
      rows: how many different ones a lane has.
      columns: likewise.
      run: how many elements, one behind the other, are neighbours in a row.
      places: by lane and element, row and column.
    """

    side: int
    rows: int
    columns: int
    run: int
    places: list[list[tuple[int, int]]]

    @classmethod
    def named(cls, name: str) -> LaneMap:
        """The map of a name that wanted() gives."""
        if name == "m1":
            return cls(8, 1, 2, 2, [_m1(lane) for lane in range(LANES)])
        places = [_m5(lane) for lane in range(LANES)]
        if name == "m5":
            return cls(16, 2, 4, 4, places)
        chance = random.Random(int(name.partition(":")[2]))
        lanes, rows, columns = (_shuffled(chance, n) for n in (LANES, 16, 16))
        places = [[(rows[r], columns[c]) for r, c in places[lane]] for lane in lanes]
        elements = _shuffled(chance, 8)
        return cls(16, 2, 4, 1, [[of_lane[e] for e in elements] for of_lane in places])

    def definition(self) -> str:
        """The constant that cooperative_tensor.h declares."""
        lane, element = [0] * 256, [0] * 256
        for number, places in enumerate(self.places):
            for i, (row, column) in enumerate(places):
                lane[row * self.side + column] = number
                element[row * self.side + column] = i
        first = self.places[0]
        parts = [
            *(self.side, len(first), self.rows, self.columns, self.run),
            *(
                _table([[place[axis] for place in of_lane] for of_lane in self.places])
                for axis in (0, 1)
            ),
            *(_numbers(lane), _numbers(element)),
            *(_numbers(_order([place[axis] for place in first])) for axis in (0, 1)),
        ]
        return f'extern "C" const _msl::LaneMap _msl_lane_map = {{{", ".join(map(str, parts))}}};\n'


def _m1(lane: int) -> list[tuple[int, int]]:
    row = (lane // 4 & 4) + (lane // 2 & 3)
    column = (lane // 4 & 2) * 2 + (lane & 1) * 2
    return [(row, column), (row, column + 1)]


def _m5(lane: int) -> list[tuple[int, int]]:
    row = (lane // 4 & 4) | (lane // 2 & 3)
    column = ((lane // 4 & 2) | (lane & 1)) * 4
    return [(row + 8 * i, column + j) for i in range(2) for j in range(4)]


def _shuffled(chance: random.Random, n: int) -> list[int]:
    numbers = list(range(n))
    chance.shuffle(numbers)
    return numbers


def _order(values: list[int]) -> list[int]:
    """Each value's number among the different ones, by their first appearance. It is the same for all lanes, whose elements lie
    in one order."""
    seen = list(dict.fromkeys(values))
    return [seen.index(value) for value in values]


def _numbers(values: list[int]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def _table(rows: list[list[int]]) -> str:
    return "{" + ", ".join(map(_numbers, rows)) + "}"
