"""Short vectors taken apart, for lanes.py: a loop over lanes with one in it does not become a loop over vectors of lanes.

The optimiser makes them where pairs are copied as 8 bytes. Those that only hold numbers together go; values that are
computed or accessed as a vector stay.
"""

from __future__ import annotations

import re

from .lane_ir import Function, Instruction, named

_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_ZERO = {"float": "0.0", "double": "0.0", "half": "0xH0000", "bfloat": "0xR0000"}
_ZERO |= {"ptr": "null", "i1": "false"}
_INSERT = re.compile(r"insertelement (<\d+ x \w+>) (.+), \w+ (\S+), i\d+ (\d+)$")
_EXTRACT = re.compile(r"extractelement <\d+ x \w+> (\S+), i\d+ (\d+)$")
_CAST = re.compile(r"bitcast (<\d+ x \w+>) (\S+) to (<\d+ x \w+>)$")
_NAME = re.compile(r"(?<!label )%(?:\"[^\"]+\"|[\w.$-]+)")
_VALUE_OF_PHI = re.compile(rf"(?<=\[ ){_NAME.pattern}(?=, )")


def _shape(kind: str) -> tuple[int, str]:
    """How many elements a vector's type has, and their type."""
    found = _VECTOR.fullmatch(kind)
    assert found, kind
    return int(found[1]), found[2]


class Vectors:
    """The vectors of a function that can go."""

    def __init__(self, function: Function):
        self._function = function
        self._all = {
            i.result: i
            for block in function.blocks.values()
            for i in block.instructions
            if i.result and (_INSERT.match(i.text) or self._phi(i) or self._cast(i))
        }
        # Values with one that stays, stay.
        while stay := self._staying():
            for value in stay:
                del self._all[value]

    @staticmethod
    def _phi(i: Instruction) -> bool:
        return i.operation == "phi" and bool(_VECTOR.fullmatch(i.type()))

    @staticmethod
    def _cast(i: Instruction) -> bool:
        found = _CAST.match(i.text)
        return found is not None and _shape(found[1])[0] == _shape(found[3])[0]

    def _staying(self) -> set[str]:
        stay: set[str] = set()
        for block in self._function.blocks.values():
            for i in block.instructions:
                if i.result in self._all:
                    if not all(
                        v in self._all if v[0] == "%" else self._constants(v, i.type())
                        for v in self._operands(i)
                    ):
                        stay.add(i.result)
                elif not _EXTRACT.match(i.text):
                    stay |= self._all.keys() & set(i.uses)
        return stay

    @staticmethod
    def _operands(i: Instruction) -> list[str]:
        """The vectors that it is made of."""
        if found := _INSERT.match(i.text):
            return [found[2]]
        if found := _CAST.match(i.text):
            return [found[2]]
        return [value for value, _ in i.incoming()]

    @staticmethod
    def _constants(text: str, kind: str) -> list[str]:
        """The elements of a constant; none if it is written in another way."""
        count, element = _shape(kind)
        if text in ("poison", "undef"):
            return [text] * count
        if text == "zeroinitializer":
            return [_ZERO.get(element, "0")] * count
        if found := re.fullmatch(rf"splat \({element} (\S+)\)", text):
            return [found[1]] * count
        found_all = re.findall(rf"{element} ([\w.+-]+)(?=, |>)", text) if text[0] == "<" else []
        return found_all if len(found_all) == count else []

    def _elements(self, value: str, kind: str) -> list[str]:
        if value[0] != "%":
            return self._constants(value, kind)
        found = _INSERT.match(self._all[value].text)
        if not found:
            return [named(value, f".e{n}") for n in range(_shape(kind)[0])]
        out = list(self._elements(found[2], kind))
        out[int(found[4])] = found[3]
        return out

    def _scalar(self, value: str) -> str:
        """The vector's element that a value was taken from."""
        while value in self._function.defs:
            found = _EXTRACT.match(self._function.defs[value][1].text)
            if not found or found[1] not in self._all:
                break
            value = self._elements(found[1], self._all[found[1]].type())[int(found[2])]
        return value

    def take_apart(self) -> None:
        """Replaces them by their elements."""
        if not self._all:
            return
        for block in self._function.blocks.values():
            new: list[Instruction] = []
            for i in block.instructions:
                if i.result in self._all:
                    new += self._apart(i)
                elif not (found := _EXTRACT.match(i.text)) or found[1] not in self._all:
                    new.append(i)
            for i in new:
                # Not in names of blocks, which look the same.
                names = _VALUE_OF_PHI if i.operation == "phi" else _NAME
                i.text = names.sub(lambda m: self._scalar(m[0]), i.text)
            block.instructions = new
        self._function.index()

    def _apart(self, i: Instruction) -> list[Instruction]:
        if i.operation == "insertelement":
            return []
        assert i.result
        kind = i.type()
        element, names = _shape(kind)[1], self._elements(i.result, kind)
        if found := _CAST.match(i.text):
            of = _shape(found[1])[1]
            return [
                Instruction(name, f"bitcast {of} {value} to {element}", "bitcast")
                for name, value in zip(names, self._elements(found[2], found[1]), strict=True)
            ]
        head = i.text[: i.text.index(kind)]
        into = [(self._elements(value, kind), block) for value, block in i.incoming()]
        return [
            Instruction(
                name,
                f"{head}{element} "
                + ", ".join(f"[ {values[n]}, %{block} ]" for values, block in into),
                "phi",
            )
            for n, name in enumerate(names)
        ]
