"""A function of LLVM's textual IR in blocks and instructions, for lanes.py: the types of values and their users."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Calls that are barriers for lanes.
BARRIER = "@_msl_barrier"
SIMD = "@_msl_simd"
# The operations of lanes on a simdgroup matrix, all at once.
MATRIX = "@_msl_matrix"


class Fallback(Exception):
    """The kernel keeps its fibers; the words say why."""


class Unrollable(Fallback):
    """It may not, once the loops around its barriers are unrolled."""


_NAME = r"%(?:\"[^\"]+\"|[\w.$-]+)"
_LABEL = re.compile(r'^("[^"]+"|[\w.$-]+):')
_RESULT = re.compile(rf"^({_NAME}) = (.*)$", re.S)
_USES = re.compile(_NAME)
_CALLEE = re.compile(r"(@(?:\"[^\"]+\"|[\w.$-]+))\(")
_METADATA = re.compile(r"(?:, ![\w.]+ !\d+)+$")
_FLAGS = re.compile(
    r"(?:(?:nuw|nsw|exact|disjoint|nneg|inbounds|nusw|samesign|fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|volatile|"
    r"atomic|tail|notail|musttail|noundef|zeroext|signext|nonnull|fastcc) |(?:range|dereferenceable(?:_or_null)?)\([^)]*\) |align \d+ )*"
)
_BINARY = frozenset(
    "add sub mul udiv sdiv urem srem shl lshr ashr and or xor fadd fsub fmul fdiv frem fneg freeze".split()
)
_CASTS = frozenset(
    "trunc zext sext fptrunc fpext fptoui fptosi uitofp sitofp ptrtoint inttoptr bitcast".split()
)
# Instructions that a region may compute anew rather than keep their results: no memory, and cheap.
CHEAP = (_BINARY | _CASTS | {"icmp", "fcmp", "getelementptr", "select"}) - {
    *("udiv", "sdiv", "urem", "srem", "fdiv", "frem", "freeze")
}


def type_at(text: str) -> str:
    """The type at the beginning of a text."""
    closing = {"<": ">", "[": "]", "{": "}"}
    if text[:1] in closing:
        depth = 0
        for i, c in enumerate(text):
            depth += (c in "<[{") - (c in ">]}")
            if depth == 0:
                return text[: i + 1]
        raise Fallback(f"a type that does not end: {text[:40]}")
    found = re.match(r"%\"[^\"]+\"|%?[\w.:]+", text)
    if not found:
        raise Fallback(f"no type: {text[:40]}")
    return found[0]


def replaced(text: str, old: str, new: str) -> str:
    """An instruction's text with another value in the place of one."""
    return re.sub(rf"{re.escape(old)}(?![\w.$-])", lambda _: new, text)


_SIZES = {"i1": 1, "i8": 1, "i16": 2, "half": 2, "bfloat": 2, "i32": 4, "float": 4}
_SIZES |= {"i64": 8, "double": 8, "ptr": 8}


def size_of(kind: str, types: dict[str, str]) -> tuple[int, int]:
    """A type's bytes and alignment; `types` are those that have names. LookupError if it is not understood."""
    if kind in _SIZES:
        return _SIZES[kind], _SIZES[kind]
    if kind[0] == "%":
        return size_of(types[kind], types)
    if found := re.fullmatch(r"<(\d+) x (?!i1>)(\w+)>", kind):
        bytes_ = 1 << (int(found[1]) * _SIZES[found[2]] - 1).bit_length()
        return bytes_, bytes_
    if found := re.fullmatch(r"\[(\d+) x (.*)\]", kind):
        size, align = size_of(found[2], types)
        return int(found[1]) * size, align
    if kind[0] != "{":
        raise LookupError(kind)
    at, most, rest = 0, 1, kind[1:-1].strip()
    while rest:
        part = type_at(rest)
        size, align = size_of(part, types)
        at, most = -(-at // align) * align + size, max(most, align)
        rest = rest[len(part) :].lstrip(", ")
    return -(-at // most) * most, most


@dataclass
class Instruction:
    """One instruction: `text` is all of it but the result, without metadata."""

    result: str | None
    text: str
    operation: str
    metadata: str = ""
    uses: list[str] = field(default_factory=list)

    def type(self) -> str:
        """The type of the result."""
        rest = self.text[len(self.operation) :].lstrip()
        rest = rest[_FLAGS.match(rest).end() :]  # type: ignore[union-attr]
        operation = self.operation
        if operation in _BINARY or operation in ("load", "phi"):
            return type_at(rest)
        if operation in _CASTS:
            return self.text.rsplit(" to ", 1)[1]
        if operation in ("icmp", "fcmp"):
            kind = type_at(rest.split(" ", 1)[1])
            return re.sub(r"x .*>$", "x i1>", kind) if kind[0] == "<" else "i1"
        if operation == "getelementptr":
            return (
                "ptr" if not re.search(r", <\d+ x (?:ptr|i\d+)> ", self.text) else self._unknown()
            )
        if operation == "alloca":
            return "ptr"
        if operation == "select":
            return type_at(rest[len(type_at(rest)) :].split(", ", 1)[1])
        if operation == "extractelement":
            return re.sub(r"^<\d+ x (.*)>$", r"\1", type_at(rest))
        if operation == "insertelement":
            return type_at(rest)
        if operation == "shufflevector":
            kind, count = type_at(rest), re.search(r", <(\d+) x i32> ", self.text)
            return re.sub(r"^<\d+", f"<{count[1]}", kind) if count else self._unknown()
        if operation == "call":
            return type_at(rest)
        if operation == "atomicrmw":
            return type_at(re.sub(r"^.*?, (?=\S+ \S+ \w)", "", self.text))
        return self._unknown()

    def _unknown(self) -> str:
        raise Fallback(f"a value of '{self.operation}' is kept")

    def callee(self) -> str:
        """The function that is called; '' if this is no call, or one through a pointer."""
        if self.operation != "call":
            return ""
        found = _CALLEE.search(self.text)
        return found[1] if found else ""

    def incoming(self) -> list[tuple[str, str]]:
        """For a phi: values and the blocks that they come from."""
        rest = self.text[len(self.type()) + 4 :]
        return [
            (value, block)
            for value, block in re.findall(r"\[ (.*?), %((?:\"[^\"]+\")|[\w.$-]+) \]", rest)
        ]


@dataclass
class Block:
    """A block; the last instruction ends it."""

    name: str
    instructions: list[Instruction]
    succs: list[str] = field(default_factory=list)
    preds: list[str] = field(default_factory=list)
    meeting: Instruction | None = None  # all that is in it
    whole: bool = False  # for operations that all lanes do at once, and for uniform values

    @property
    def phis(self) -> list[Instruction]:
        """They come first."""
        return [i for i in self.instructions if i.operation == "phi"]

    @property
    def end(self) -> Instruction:
        """The terminator."""
        return self.instructions[-1]


def named(block: str, more: str) -> str:
    """A name made of another, which may be quoted."""
    return f'{block[:-1]}{more}"' if block[0] == '"' else block + more


class Function:
    """A function that is cut behind its barriers.

    Attributes:
      blocks: by name, in the text's order.
      defs: value -> the block and instruction that define it.
      arrays: those that lie side by side with the other lanes', as lane_arrays.py finds them: elements and bytes of one.
      sums: those whose elements are sums side by side, as lane_sums.py finds them: how many.
    """

    def __init__(self, text: str, parameters: int):
        head, _, body = text.partition("\n")
        # Numbered values have to follow each other, which they do not any more when the function is cut up.
        body = re.sub(r"%(\d+)\b", r"%v\1", body)
        body = re.sub(r"(?m)^(\d+):", r"v\1:", body)
        self.head = head
        self._last: dict[str, str] = {}  # a block -> its last piece, which phis have to name
        self.blocks: dict[str, Block] = {}
        self.arrays: dict[str, tuple[int, int]] = {}
        self.sums: dict[str, int] = {}
        self._parse(body.rsplit("}", 1)[0], f"v{parameters}")
        self.defs: dict[str, tuple[str, Instruction]] = {}
        self._parameters = {f"%v{i}" for i in range(parameters)}
        self.index()
        self._last = {}  # phis name the last pieces from now on
        self._part_ends()
        self.entry = next(iter(self.blocks))

    def _parse(self, body: str, first: str) -> None:
        # switch has a line for each case.
        body = re.sub(r"\[\n(?:.*\n)*?\s*\]", lambda m: " ".join(m[0].split()), body)
        current: list[Instruction] = []
        name = first
        for line in body.split("\n"):
            if not line.strip():
                continue
            if line[0] != " ":
                found = _LABEL.match(line)
                if not found:
                    raise Fallback(f"a line that is no instruction: {line}")
                if current:
                    raise Fallback("a block without an end")
                name = found[1]
                continue
            text = line.strip()
            metadata = "".join(_METADATA.findall(text))
            text = text.removesuffix(metadata)
            text = re.sub(r" #\d+$", "", text)  # attributes of a call
            result = _RESULT.match(text)
            what = result[2] if result else text
            operation = re.sub(r"^(?:tail |notail |musttail )", "", what).split(" ", 1)[0]
            if operation == "call":
                what = re.sub(r"^(?:tail |notail )", "", what)
                if "@llvm.lifetime." in what or "@llvm.experimental.noalias" in what:
                    continue
            current.append(Instruction(result[1] if result else None, what, operation, metadata))
            if operation in ("br", "switch", "ret", "unreachable"):
                name = self._close(name, current)
                current = []
            elif operation in ("invoke", "indirectbr", "callbr", "resume"):
                raise Fallback(f"'{operation}'")

    def _close(self, name: str, instructions: list[Instruction]) -> str:
        """Adds a block, each barrier in it as a block of its own."""
        start, part, first = 0, 0, name
        for i, instruction in enumerate(instructions):
            if instruction.callee() in (BARRIER, SIMD):
                meeting, after = (named(first, f".{word}{part}") for word in ("meet", "after"))
                jump = Instruction(None, f"br label %{meeting}", "br")
                self.blocks[name] = Block(name, [*instructions[start:i], jump])
                jump = Instruction(None, f"br label %{after}", "br")
                self.blocks[meeting] = Block(meeting, [jump], meeting=instruction)
                name, start, part = after, i + 1, part + 1
        self.blocks[name] = Block(name, instructions[start:])
        self._last[first] = name
        return name

    def _part_ends(self) -> None:
        """Gives each block its own end of the function: who leaves early does not go on to where others come to."""
        for name, block in list(self.blocks.items()):
            if len(block.preds) < 2 or [i.operation for i in block.instructions] != ["ret"]:
                continue
            for n, before in enumerate(block.preds):
                own = named(name, f".end{n}")
                self.blocks[own] = Block(own, [Instruction(None, block.end.text, "ret")])
                end = self.blocks[before].end
                end.text = re.sub(
                    rf"label %{re.escape(name)}(?=[ ,\]]|$)", f"label %{own}", end.text
                )
            del self.blocks[name]
        self.index()

    def index(self) -> None:
        """Finds predecessors, definitions and uses."""
        self.defs = {}
        for block in self.blocks.values():
            block.preds = []
        for block in self.blocks.values():
            end = block.end
            names = re.findall(r"label %(\"[^\"]+\"|[\w.$-]+)", end.text)
            block.succs = list(dict.fromkeys(names))
            for instruction in block.instructions:
                if instruction.operation == "phi":
                    instruction.text = re.sub(
                        r", %(\"[^\"]+\"|[\w.$-]+) \]",
                        lambda m: f", %{self._last.get(m[1], m[1])} ]",
                        instruction.text,
                    )
                if instruction.result:
                    self.defs[instruction.result] = (block.name, instruction)
        known = self.defs.keys() | self._parameters
        for block in self.blocks.values():
            for name in block.succs:
                if name not in self.blocks:
                    raise Fallback(f"a jump to {name}, which is nowhere")
                self.blocks[name].preds.append(block.name)
            for instruction in block.instructions:
                text = instruction.text
                if instruction.operation in ("br", "switch"):
                    text = re.sub(r"label %(\"[^\"]+\"|[\w.$-]+)", "", text)
                elif instruction.operation == "phi":
                    text = " ".join(value for value, _ in instruction.incoming())
                instruction.uses = list(dict.fromkeys(u for u in _USES.findall(text) if u in known))
