"""Arrays of a thread side by side with those of the other lanes, for lanes.py: element n of all lanes, then element n + 1.

A loop over lanes that reads a[n] is one load of a vector then, where it gathers from 32 arrays that lie one after the
other. For simdgroup matrices an element is a lane's part of one: those of all lanes are the matrix.
"""

from __future__ import annotations

import math
import re

from .lane_ir import MATRIX, Fallback, Function, Instruction, named, size_of, type_at
from .lane_matrices import Operation

LANES = 32
_MOST_ZEROS = 256  # elements that are set to zero one by one
_MOST_COPIED = 64
_ALLOCA = re.compile(r"alloca (.*?)(?:, align \d+)?")
_ACCESS = re.compile(r"(?:load|store) (<(\d+) x (\w+)>|\w+)[ ,]")
_POINTER = re.compile(r"getelementptr (?:(?:inbounds|nuw|nusw) )*")
_COPY = re.compile(
    r"call void @llvm\.mem(?:cpy|move)\.p0\.p0\.i64\(ptr [^,]*?(%\S+), ptr [^,]*?(%\S+), i64 (\d+), i1 false\)"
)
_ZEROS = re.compile(
    r"call void @llvm\.memset\.p0\.i64\(ptr [^,]*?(%\S+), i8 0, i64 (\d+), i1 false\)"
)


def _zeros(i: Instruction) -> tuple[str, int]:
    """Where an instruction that is no load or store sets bytes to zero, and how many.

    Raises:
      ValueError: it does something else.
    """
    found = _ZEROS.match(i.text)
    if not found:
        raise ValueError(i.text)
    return found[1], int(found[2])


def into(
    i: Instruction, offset: int, indices: list[tuple[str, int]], times: int, size: int = 1
) -> list[Instruction]:
    """A pointer into an array whose parts lie so many times as far apart, except within `size` bytes."""
    assert i.result
    steps = [f"[{stride * times} x i8], ptr BASE, {word}" for word, stride in indices]
    if offset or not steps:
        inner = offset % size
        steps.append(f"i8, ptr BASE, i64 {(offset - inner) * times + inner}")
    out, base = [], i.uses[0]
    for n, step in enumerate(steps):
        result = i.result if n == len(steps) - 1 else named(i.result, f".step{n}")
        text = f"getelementptr {step.replace('BASE', base)}"
        out.append(Instruction(result, text, "getelementptr"))
        base = result
    return out


class Arrays:
    """The arrays of a function that can lie so.

    Args:
      function: becomes one whose accesses are to such arrays.
      types: the module's types that have names.
    """

    def __init__(self, function: Function, types: dict[str, str]):
        self._function, self._types = function, types
        self._names = 0
        self._look()

    def _look(self) -> None:
        self._users: dict[str, list[Instruction]] = {}
        # Pointers to matrices -> bytes that a lane has of one.
        self.matrices: dict[str, int] = {}
        for block in self._function.blocks.values():
            for i in block.instructions:
                for use in i.uses:
                    self._users.setdefault(use, []).append(i)
                if i.callee() == MATRIX:
                    operation = Operation.of(i)
                    for pointer, size in zip(operation.pointers, operation.bytes, strict=True):
                        if size and self.matrices.setdefault(pointer, size) != size:
                            raise Fallback("a simdgroup matrix of two sizes")

    def place(self) -> None:
        """Changes the function, and notes the arrays in it."""
        if self.matrices:
            self._copy_by_parts()
        changed: dict[int, list[Instruction]] = {}  # replacements of instructions
        for name, (_, i) in self._function.defs.items():
            if i.operation == "alloca" and name not in self._function.sums:
                try:
                    count, size, pointers, accesses = self.uses(name, i)
                except (Fallback, LookupError, ValueError):
                    continue  # they lie one after the other
                self._function.arrays[name] = count, size
                for one in pointers:
                    changed[id(one)] = self._pointer(one, size)
                for one in accesses:
                    changed[id(one)] = self._access(one, size)
        self._change(changed)

    def _change(self, changed: dict[int, list[Instruction]]) -> None:
        if not changed:
            return
        for block in self._function.blocks.values():
            block.instructions = [
                new for i in block.instructions for new in changed.get(id(i), [i])
            ]
        self._function.index()

    def _copy_by_parts(self) -> None:
        """Matrices that are copied several at a time are copied one by one."""
        changed: dict[int, list[Instruction]] = {}
        for block in self._function.blocks.values():
            for i in block.instructions:
                found = _COPY.match(i.text)
                if not found:
                    continue
                sizes = {size for p in found.groups()[:2] if (size := self._size_of_matrices(p))}
                if len(sizes) != 1:
                    continue
                (size,) = sizes
                count, rest = divmod(int(found[3]), size)
                if not rest and count <= _MOST_COPIED:
                    changed[id(i)] = self._parts(found[1], found[2], count, size)
        if changed:
            self._change(changed)
            self._look()

    def _size_of_matrices(self, pointer: str) -> int:
        """Bytes that a lane has of a matrix in the array that a pointer leads into; 0 if there are none."""
        defs = self._function.defs
        while pointer in defs and defs[pointer][1].operation == "getelementptr":
            pointer = defs[pointer][1].uses[0]
        ahead = [pointer]
        while ahead:
            here = ahead.pop()
            if here in self.matrices:
                return self.matrices[here]
            ahead += [
                i.result
                for i in self._users.get(here, [])
                if i.operation == "getelementptr" and i.result
            ]
        return 0

    def _parts(self, to: str, source: str, count: int, size: int) -> list[Instruction]:
        out, stem = [], self._new(to)
        for n in range(count):
            into, of, value = (named(stem, f".{word}{n}") for word in ("to", "of", "value"))
            for at, base in ((of, source), (into, to)):
                text = f"getelementptr i8, ptr {base}, i64 {n * size}"
                out.append(Instruction(at, text, "getelementptr"))
            out.append(Instruction(value, f"load i{8 * size}, ptr {of}, align 1", "load"))
            out.append(
                Instruction(None, f"store i{8 * size} {value}, ptr {into}, align 1", "store")
            )
        return out

    def uses(
        self, name: str, alloca: Instruction
    ) -> tuple[int, int, list[Instruction], list[Instruction]]:
        """An array's elements and the bytes of one, the pointers into it and the accesses to it.

        Raises:
          LookupError, ValueError: it has other uses, or elements of several sizes.
        """
        found = _ALLOCA.fullmatch(alloca.text)
        if not found:
            raise ValueError(alloca.text)
        whole = size_of(found[1], self._types)[0]
        pointers: list[Instruction] = []
        accesses: list[Instruction] = []
        sizes: set[int] = set()
        offsets: set[int] = set()
        zeroed: set[int] = set()
        matrices: set[int] = set()
        ahead = [name]
        while ahead:
            pointer = ahead.pop()
            if pointer in self.matrices:
                matrices.add(self.matrices[pointer])
            for i in self._users.get(pointer, []):
                if i.callee() == MATRIX:
                    if pointer not in self.matrices:
                        raise ValueError("memory that a matrix is copied to or from")
                    continue
                if i.operation == "getelementptr" and i.result:
                    offset, indices = self.path(i)
                    if i.uses[0] != pointer or pointer in (value for value, _ in indices):
                        raise ValueError(i.text)
                    offsets |= {offset, *(stride for _, stride in indices)}
                    pointers.append(i)
                    ahead.append(i.result)
                    continue
                accesses.append(i)
                if i.operation in ("load", "store"):
                    sizes.add(self._size(i, pointer))
                    continue
                where, count = _zeros(i)
                if where != pointer:
                    raise ValueError(i.text)
                zeroed.add(count)
        if matrices:
            return self._of_matrices(whole, matrices, pointers, accesses, zeroed)
        if len(sizes) != 1:
            raise ValueError("elements of several sizes")
        (size,) = sizes
        if whole % size or any(offset % size for offset in offsets | zeroed):
            raise ValueError("accesses between elements")
        if max(zeroed, default=0) > _MOST_ZEROS * size:
            raise ValueError("many zeros")
        return whole // size, size, pointers, accesses

    def _of_matrices(
        self,
        whole: int,
        sizes: set[int],
        pointers: list[Instruction],
        accesses: list[Instruction],
        zeroed: set[int],
    ) -> tuple[int, int, list[Instruction], list[Instruction]]:
        """The same for an array of matrices, where accesses may be to a piece of a lane's part."""
        (size,) = sizes
        if whole % size or any(n % size or n > _MOST_ZEROS * size for n in zeroed):
            raise ValueError("between matrices")
        # By pointer, of how many bytes it is a multiple, from where a matrix begins.
        steps: dict[str, int] = {}
        for i in pointers:
            offset, indices = self.path(i)
            if i.uses[0] in steps:
                raise ValueError("a pointer behind one to a part of a matrix")
            step = math.gcd(size, offset, *(stride for _, stride in indices))
            if step < size and i.result:
                steps[i.result] = step
        for i in accesses:
            if i.operation == "call":
                pointer, bytes_ = _zeros(i)[0], size
            else:
                found = _ACCESS.match(i.text)
                assert found
                pointer, bytes_ = i.uses[-1], size_of(found[1], self._types)[0]
            if steps.get(pointer, size) % bytes_:
                raise ValueError("accesses between matrices")
        return whole // size, size, pointers, accesses

    def _size(self, access: Instruction, pointer: str) -> int:
        """Bytes of a scalar that is read or written there."""
        found = _ACCESS.match(access.text)
        if not found or not re.search(rf"ptr {re.escape(pointer)}(?:,|$)", access.text):
            raise ValueError(access.text)
        if access.operation == "store" and access.text.split(", ptr ")[0].endswith(f" {pointer}"):
            raise ValueError("a pointer is kept")
        return size_of(found[3] or found[1], self._types)[0]

    def path(self, i: Instruction) -> tuple[int, list[tuple[str, int]]]:
        """The bytes between two pointers: a number, and indices times their strides."""
        rest = _POINTER.sub("", i.text, count=1)
        kind = type_at(rest)
        words = rest[len(kind) :].split(", ")[2:]
        offset, indices = 0, []
        for n, word in enumerate(words):
            index = word.split(" ")[-1]
            if n and (kind := self._types.get(kind, kind))[0] == "{":
                more, kind = self._member(kind, int(index))
                offset += more
                continue
            if n:
                found = re.fullmatch(r"\[\d+ x (.*)\]", kind)
                if not found:
                    raise ValueError(kind)
                kind = found[1]
            stride = size_of(kind, self._types)[0]
            if index[0] == "%":
                indices.append((word, stride))
            else:
                offset += int(index) * stride
        return offset, indices

    def _member(self, kind: str, index: int) -> tuple[int, str]:
        """Where a struct's member lies, and its type."""
        at, rest = 0, kind[1:-1].strip()
        while True:
            part = type_at(rest)
            size, align = size_of(part, self._types)
            at = -(-at // align) * align
            if not index:
                return at, part
            at, index = at + size, index - 1
            rest = rest[len(part) :].lstrip(", ")

    def _pointer(self, i: Instruction, size: int) -> list[Instruction]:
        """The pointer into arrays side by side: all offsets are so many times as long, but those within an element."""
        offset, indices = self.path(i)
        assert i.result
        if any(stride % size for _, stride in indices):
            return self._part_of_matrix(i, offset, indices, size)
        return into(i, offset, indices, LANES, size)

    def _part_of_matrix(
        self, i: Instruction, offset: int, indices: list[tuple[str, int]], size: int
    ) -> list[Instruction]:
        """A pointer to a matrix and a part of it that are known as the program runs."""
        assert i.result
        out: list[Instruction] = []

        def new(text: str) -> str:
            name = named(i.result or "", f".of{len(out)}")
            out.append(Instruction(name, text, text.split(" ", 1)[0]))
            return name

        behind = str(offset)
        for word, stride in indices:
            kind, index = word.split(" ")
            if kind != "i64":
                index = new(f"sext {word} to i64")
            behind = new(f"add i64 {behind}, {new(f'mul i64 {index}, {stride}')}")
        part = new(f"and i64 {behind}, {size - 1}")
        matrix = new(f"mul i64 {new(f'and i64 {behind}, -{size}')}, {LANES}")
        text = f"getelementptr i8, ptr {i.uses[0]}, i64 {new(f'add i64 {matrix}, {part}')}"
        return [*out, Instruction(i.result, text, "getelementptr")]

    def _access(self, i: Instruction, size: int) -> list[Instruction]:
        if i.operation == "call":
            pointer, count = _zeros(i)
            return self._set(pointer, count // size, size)
        found = _ACCESS.match(i.text)
        assert found
        if not found[2]:
            return [
                Instruction(i.result, re.sub(r", align \d+", "", i.text), i.operation, i.metadata)
            ]
        pointer = re.findall(r"ptr (%(?:\"[^\"]+\"|[\w.$-]+))", i.text)[-1]
        stem = i.result or self._new(pointer)
        vector, kind, out = found[1], found[3], []
        part = size_of(kind, self._types)[0]
        step = part if part < size else size * LANES
        whole = "poison"
        for n in range(int(found[2])):
            at = pointer
            if n:
                at = named(stem, f".at{n}")
                text = f"getelementptr i8, ptr {pointer}, i64 {n * step}"
                out.append(Instruction(at, text, "getelementptr"))
            element = named(stem, f".part{n}")
            if i.operation == "load":
                out.append(Instruction(element, f"load {kind}, ptr {at}", "load"))
                last = n == int(found[2]) - 1
                new = i.result if last else named(stem, f".with{n}")
                text = f"insertelement {vector} {whole}, {kind} {element}, i64 {n}"
                out.append(Instruction(new, text, "insertelement"))
                whole = new or ""
            else:
                value = i.text[len("store ") + len(vector) :].rsplit(", ptr ", 1)[0].strip()
                text = f"extractelement {vector} {value}, i64 {n}"
                out.append(Instruction(element, text, "extractelement"))
                out.append(Instruction(None, f"store {kind} {element}, ptr {at}", "store"))
        return out

    def _new(self, pointer: str) -> str:
        """A name that nothing has."""
        self._names += 1
        return named(pointer, f".set{self._names}")

    def _set(self, pointer: str, count: int, size: int) -> list[Instruction]:
        out, stem = [], self._new(pointer)
        for n in range(count):
            at = named(stem, f".at{n}")
            text = f"getelementptr i8, ptr {pointer}, i64 {n * size * LANES}"
            out.append(Instruction(at, text, "getelementptr"))
            out.append(Instruction(None, f"store i{8 * size} 0, ptr {at}", "store"))
        return out
