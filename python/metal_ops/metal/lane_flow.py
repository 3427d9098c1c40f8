"""Control flow of a kernel's thread, for lanes.py: dominators, loops, and values that are uniform in a simdgroup."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .lane_ir import Fallback, Function, Instruction

# Intrinsics whose result depends on their arguments alone.
_PURE = (
    "abs smax smin umax umin fabs fma fmuladd sqrt floor ceil trunc rint nearbyint round roundeven minnum maxnum minimum "
    "maximum copysign ctpop ctlz cttz bitreverse bswap fshl fshr sadd uadd ssub usub is powi ldexp vector canonicalize"
).split()


def pure(instruction: Instruction) -> bool:
    """Whether a call computes from its arguments and nothing else."""
    name = instruction.callee()
    return name.startswith("@llvm.") and name.split(".")[1] in _PURE


class Flow:
    """The graph of a function's blocks.

    Attributes:
      order: reverse postorder.
      number: a block's place there.
      loops: header -> its blocks.
    """

    def __init__(self, function: Function):
        self.function = function
        self.succs = {name: block.succs for name, block in function.blocks.items()}
        self.order = postorder(function.entry, self.succs)[::-1]
        self.number = {name: i for i, name in enumerate(self.order)}
        for name in [n for n in function.blocks if n not in self.number]:
            del function.blocks[name]
        self.preds = {
            name: [p for p in function.blocks[name].preds if p in self.number]
            for name in self.order
        }
        self.idom = dominators(function.entry, self.order, self.preds)
        self.loops: dict[str, set[str]] = {}
        for name in self.order:
            for target in self.succs[name]:
                if self.number[target] <= self.number[name]:
                    if not self.dominates(target, name):
                        raise Fallback("loops that have several entries")
                    self._loop(target, name)

    def dominates(self, a: str, b: str) -> bool:
        """Whether every path to b leads through a."""
        while self.number[b] > self.number[a]:
            b = self.idom[b]
        return a == b

    def _loop(self, header: str, latch: str) -> None:
        body = self.loops.setdefault(header, {header})
        ahead = [latch]
        while ahead:
            name = ahead.pop()
            if name not in body:
                body.add(name)
                ahead += self.preds[name]


def postorder(entry: str, succs: dict[str, list[str]]) -> list[str]:
    """All nodes that can be reached."""
    out: list[str] = []
    seen = {entry}
    stack = [(entry, iter(succs[entry]))]
    while stack:
        name, rest = stack[-1]
        following = next((s for s in rest if s not in seen), None)
        if following is None:
            out.append(name)
            stack.pop()
        else:
            seen.add(following)
            stack.append((following, iter(succs[following])))
    return out


def dominators(entry: str, order: list[str], preds: dict[str, list[str]]) -> dict[str, str]:
    """For each node the immediate one; `order` is reverse postorder."""
    number = {name: i for i, name in enumerate(order)}
    idom = {entry: entry}
    changed = True
    while changed:
        changed = False
        for name in order:
            if name == entry:
                continue
            new = None
            for p in preds[name]:
                if p not in idom:
                    continue
                if new is None:
                    new = p
                    continue
                a, b = p, new
                while a != b:
                    while number[a] > number[b]:
                        a = idom[a]
                    while number[b] > number[a]:
                        b = idom[b]
                new = a
            if new is not None and idom.get(name) != new:
                idom[name] = new
                changed = True
    return idom


def postdominators(nodes: Iterable[str], succs: dict[str, list[str]]) -> dict[str, str]:
    """For each node the immediate one; '' is the end, where those without successors lead."""
    reverse: dict[str, list[str]] = {"": []}
    for name in nodes:
        reverse.setdefault(name, [])
    for name in nodes:
        if not succs[name]:
            reverse[""].append(name)
        for target in succs[name]:
            reverse[target].append(name)
    order = postorder("", reverse)[::-1]
    forward = {name: (succs[name] or [""]) for name in order if name}
    return dominators("", order, {"": [], **forward})


class Bits:
    """How many of the low bits of a value differ between the lanes, while the others are the same.

    The lanes of a simdgroup have numbers from 32 n on: n is the same in all, and so is whether they are less than 64.

    Attributes:
      low: the number of such bits, by value.
      asks_aligned: whether anything here holds only where a threadgroup has whole simdgroups in x.
    """

    def __init__(self, uniform: Uniform, flow: Flow, rows: bool):
        self._uniform, self._flow, self._rows = uniform, flow, rows
        self.low = {"%v2": 5, **({"%v3": 5} if rows else {})}
        self.asks_aligned = False

    def of(self, block: str, i: Instruction, joins: bool) -> int | None:
        """The stride of an instruction's result; 0 if all lanes have the same, None if nothing is known."""
        low = self._of(block, i, joins)
        # The next value of one that grows in a loop.
        return (
            None if low is not None and (low > 15 or low < self.low.get(i.result or "", 0)) else low
        )

    def _of(self, block: str, i: Instruction, joins: bool) -> int | None:
        operation = i.operation
        if operation == "phi":
            values = {value for value, _ in i.incoming()}
            if joins and len(values) > 1:
                return None
            return self._most([self._known(block, v) for v in values])
        if operation not in _BITWISE or "<" in i.text:
            return None
        words = _operands(i)
        if len(words) != {"zext": 1, "sext": 1, "trunc": 1, "freeze": 1, "select": 3}.get(
            operation, 2
        ):
            return None  # an expression, or a value that is undefined
        if operation in ("zext", "sext", "trunc", "freeze"):
            return self._known(block, words[0])
        if operation == "select":
            condition, *choices = words
            if self._known(block, condition) != 0:
                return None
            return self._most([self._known(block, v) for v in choices])
        a, b = words
        low = self._known(block, a)
        other = self._known(block, b)
        if low is None or other is None:
            return None
        if low == other == 0:
            return 0
        number = None if b[0] == "%" else _number(b)
        if operation in ("lshr", "ashr"):
            return None if number is None else max(0, low - number)
        if operation == "shl":
            return None if number is None else low + number
        if operation in ("or", "xor"):
            return max(low, other)
        if operation == "and":
            if number is not None:
                return 0 if number % (1 << low) == 0 else low
            return max(low, other)
        if operation == "udiv":
            return None if number is None or number == 0 or number % (1 << low) else 0
        if low and other:
            return None
        k = low or other
        same = b if low else a
        if operation == "add":
            return k if self.aligned(same) >= k else None
        if operation == "sub":
            return k if low and self.aligned(same) >= k else None
        if operation == "icmp" and low:
            how = i.text.split(" ")[1]
            if how in ("ult", "uge", "slt", "sge") and self.aligned(same) >= k:
                return 0
            if (
                how in ("ugt", "ule", "sgt", "sle")
                and number is not None
                and (number + 1) % (1 << k) == 0
            ):
                return 0
        return None

    def _known(self, block: str, value: str) -> int | None:
        if value[0] != "%":
            return 0
        if value in self.low:
            home = self._flow.function.defs.get(value)
            leaves = home is not None and self._uniform.left_at_other_times(block, value)
            return None if leaves else self.low[value]
        return None if self._uniform.reads(block, value) else 0

    @staticmethod
    def _most(bits: list[int | None]) -> int | None:
        known = [b for b in bits if b is not None]
        return max(known, default=0) if len(known) == len(bits) else None

    def aligned(self, value: str, within: frozenset[str] = frozenset()) -> int:
        """How many of a value's low bits are certainly 0."""
        if value[0] != "%":
            number = _number(value)
            return 0 if number is None else (number & -number).bit_length() - 1 if number else 64
        if value in within:  # a loop's own value: as aligned as its first value and its increment
            return 64
        if value not in self._flow.function.defs or len(within) > 12:
            return 0
        i = self._flow.function.defs[value][1]
        inner = within | {value}
        if i.operation == "phi":
            return min(self.aligned(v, inner) for v, _ in i.incoming())
        if i.operation == "load" and self._is_threadgroup_width(i):
            self.asks_aligned = True
            return 5
        if (
            i.operation not in (*_BITWISE, "mul")
            or "<" in i.text
            or i.operation in ("icmp", "select")
        ):
            return 0
        bits = [self.aligned(w, inner) for w in _operands(i)]
        if len(bits) != (1 if i.operation in ("zext", "sext", "trunc", "freeze") else 2):
            return 0
        if i.operation == "shl":
            by = _number(_operands(i)[1])
            return 0 if by is None else bits[0] + by
        if i.operation == "mul":
            return sum(bits)
        if i.operation == "and":
            return max(bits)
        if i.operation in ("lshr", "ashr", "udiv"):
            return 0
        return min(bits)

    def _is_threadgroup_width(self, load: Instruction) -> bool:
        """Whether it reads launch->threadgroup_size[0]; the launch is the first member of a thread's argument."""
        defs = self._flow.function.defs
        at = defs.get(load.uses[0]) if load.uses else None
        if not self._rows or at is None or not load.text.startswith("load i32, "):
            return False
        found = re.fullmatch(r"getelementptr (?:\w+ )*i8, ptr (\S+), i64 20", at[1].text)
        launch = defs.get(found[1]) if found else None
        return launch is not None and bool(re.match(r"load ptr, ptr %v0(?:,|$)", launch[1].text))


_BITWISE = frozenset(
    "zext sext trunc freeze select lshr ashr shl or xor and udiv add sub icmp".split()
)


def _operands(i: Instruction) -> list[str]:
    """Values and numbers that a simple instruction works on."""
    text = i.text.split(" to ", 1)[0]
    return re.findall(r"(?<=[ ,])(%(?:\"[^\"]+\"|[\w.$-]+)|-?\d+|true|false)(?=,|$)", text)


def _number(word: str) -> int | None:
    try:
        return int(word)
    except ValueError:
        return None


class Uniform:
    """Values that are the same in all lanes that compute them at one time.

    Attributes:
      divergent: the values that are not.
      branches: blocks that end in a branch on such a value.
      loads: The results of a simdgroup function for all lanes, as they read them.
    """

    def __init__(self, flow: Flow, divergent: set[str], uniform_loads: set[str], rows: bool):
        self._flow = flow
        self._blocks = flow.function.blocks
        self.loads = uniform_loads
        self.divergent = set(divergent)
        self._bits = Bits(self, flow, rows)
        self.branches: set[str] = set()
        self._joins: set[str] = set()  # blocks whose phis choose by a divergent branch
        self._leaky: set[str] = set()  # headers of loops that lanes leave at different times
        changed = True
        while changed:
            self._changed = False
            before = len(self.divergent), len(self.branches), len(self._joins), len(self._leaky)
            for name in flow.order:
                self._look(name)
            changed = self._changed or before != (
                len(self.divergent),
                len(self.branches),
                len(self._joins),
                len(self._leaky),
            )

    def _look(self, name: str) -> None:
        block = self._blocks[name]
        for instruction in block.instructions:
            result = instruction.result
            if not result or result in self.divergent and result not in self._bits.low:
                continue
            low = self._bits.of(name, instruction, name in self._joins)
            if low is None and self._differs(name, instruction):
                self.divergent.add(result)
                self._changed |= self._bits.low.pop(result, 0) > 0
            elif low and self._bits.low.get(result) != low:
                self._bits.low[result] = low
                self.divergent.add(result)
                self._changed = True
        end = block.end
        if len(block.succs) > 1 and name not in self.branches:
            if any(self.reads(name, use) for use in end.uses):
                self.branches.add(name)
                self._diverge(block.succs)
                for header, body in self._flow.loops.items():
                    if name in body and not body.issuperset(block.succs):
                        self._leave(header, body)

    def _leave(self, header: str, body: set[str]) -> None:
        if header not in self._leaky:
            self._leaky.add(header)
            exits = {t for n in body for t in self._flow.succs[n] if t not in body}
            # All that leave, by whichever exit, do so at different times.
            self._joins |= exits
            self._diverge(sorted(exits))

    def _diverge(self, succs: list[str]) -> None:
        """Marks the blocks where paths from different successors join."""
        number = self._flow.number
        label = {s: s for s in succs}
        for name in self._flow.order:
            if name not in label:
                continue
            for target in self._flow.succs[name]:
                mine = label[name]
                if target not in label:
                    label[target] = mine
                elif label[target] != mine:
                    self._joins.add(target)
                    if number[target] > number[name]:
                        label[target] = target

    def reads(self, block: str, use: str) -> bool:
        """Whether a value differs between lanes where it is used."""
        return use in self.divergent or self.left_at_other_times(block, use)

    def left_at_other_times(self, block: str, use: str) -> bool:
        """Whether a value is of a loop around its definition that lanes have left at different times."""
        if self._leaky and use in self._flow.function.defs:
            home = self._flow.function.defs[use][0]
            return any(home in (b := self._flow.loops[h]) and block not in b for h in self._leaky)
        return False

    @property
    def asks_aligned(self) -> bool:
        """Whether this holds only where a threadgroup has whole simdgroups in x."""
        return self._bits.asks_aligned

    def in_leaky_loop(self, block: str) -> bool:
        """Whether it is in a loop that lanes leave at different times."""
        return any(block in self._flow.loops[header] for header in self._leaky)

    def _differs(self, block: str, instruction: Instruction) -> bool:
        operation = instruction.operation
        if operation == "phi":
            if block in self._joins:
                values = {value for value, _ in instruction.incoming()}
                if len(values) > 1:
                    return True
            return any(self.reads(block, use) for use in instruction.uses)
        if operation == "alloca":
            return True
        if operation == "load":
            if instruction.result in self.loads:
                return False
            if " atomic " in instruction.text or " volatile " in instruction.text:
                return True
        elif operation == "call":
            name = instruction.callee()
            if not pure(instruction) and not name.startswith("@llvm.threadlocal.address"):
                return True
        elif operation in ("atomicrmw", "cmpxchg"):
            return True
        return any(self.reads(block, use) for use in instruction.uses)
