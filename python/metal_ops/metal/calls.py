"""The features that a kernel reaches through calls: barriers, threadgroup memory, recursion, address spaces inside
templates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .reflection import Kernel
from .rules import Rules
from .syntax_tree import SyntaxTree


@dataclass
class _Function:
    """One function body, scanned."""

    callees: list[Any] = field(default_factory=list)
    fibers: bool = False
    logs: bool = False
    static_bytes: int = 0
    # Function constants by their nodes' hashes: those that it reads, and those it asks of whether they have a value.
    reads: dict[int, None] = field(default_factory=dict)
    asks: dict[int, None] = field(default_factory=dict)
    parameters: set[int] = field(default_factory=set)  # of a kernel: its own, that it names


class _Ids:
    """The kinds of nodes that matter here, as numbers."""

    def __init__(self, tree: SyntaxTree):
        kind = tree.kind
        self.call = tree.ids(kind.CALL_EXPR)
        self.member = tree.ids(kind.MEMBER_REF_EXPR)
        self.reference = tree.ids(kind.CALL_EXPR, kind.DECL_REF_EXPR, kind.MEMBER_REF_EXPR)
        self.variable = tree.ids(kind.VAR_DECL)
        self.parameter = tree.ids(kind.PARM_DECL)
        self.all = self.reference | self.variable | tree.ids(kind.UNEXPOSED_EXPR)
        self.function = tree.ids(
            kind.FUNCTION_DECL,
            kind.CXX_METHOD,
            kind.CONSTRUCTOR,
            kind.CONVERSION_FUNCTION,
            kind.DESTRUCTOR,
        )


class Calls:
    """The functions of one syntax tree, each scanned once."""

    def __init__(self, tree: SyntaxTree, rules: Rules):
        self._tree = tree
        self._rules = rules
        self._ids = _Ids(tree)
        self._functions: dict[int, _Function] = {}
        # Names of function constants, by their nodes' hashes; a derived one has a function that makes its value.
        self.constants: dict[int, str] = {}
        self.derived: dict[int, Any] = {}
        # Whether the library's functions are barriers or the like; None for the user's.
        self._synchronise: dict[int, bool | None] = {}
        self._logs: set[int] = set()  # those of the library's functions that write messages

    def follow(self, kernel: Kernel, root: Any, conditions: Iterable[int] = ()) -> None:
        """Adds to `kernel` the needs of its function, `root`, and of all that it calls.

        Args:
          kernel: The kernel that is added to.
          root: Its function.
          conditions: The constants that its arguments depend on, by their nodes' hashes.
        """
        done: set[int] = set()
        path: list[int] = []

        def visit(function: Any, is_kernel: bool) -> None:
            key = function.hash
            if key in path:
                self._tree.say(
                    function,
                    f"recursive call of '{function.spelling}': recursion is not supported in Metal",
                )
                return
            if key in done:
                return
            done.add(key)
            path.append(key)
            if key not in self._functions:
                self._functions[key] = self._scan(function, is_kernel)
            scanned = self._functions[key]
            kernel.fibers |= scanned.fibers
            kernel.logs |= scanned.logs
            kernel.static_bytes += scanned.static_bytes
            add(scanned.reads, scanned.asks)
            for callee in scanned.callees:
                visit(callee, False)
            path.pop()

        def add(reads: Iterable[int], asks: Iterable[int]) -> None:
            for found, into in ((reads, kernel.reads), (asks, kernel.asks)):
                for key in found:
                    into[self.constants[key]] = None
                    if key in self.derived:
                        visit(self.derived[key], False)

        visit(root, True)
        add(conditions, ())
        named = self._functions[root.hash].parameters
        kernel.used = {i for i, p in enumerate(root.get_arguments()) if p.hash in named}

    def _scan(self, function: Any, is_kernel: bool) -> _Function:
        out = _Function()
        seen: set[int] = set()
        tree, ids = self._tree, self._ids
        loops: set[int] | None = None
        asks = False
        for cursor, parent in tree.below(function, ids.all):
            what = cursor._kind_id
            if what in ids.reference:
                target = tree.referenced(cursor)
                if target is None:
                    continue
                if self.constants and target._kind_id in ids.variable:
                    if target.hash in self.constants:
                        (out.asks if asks else out.reads)[target.hash] = None
                        asks = False
                if is_kernel and target._kind_id in ids.parameter:
                    out.parameters.add(target.hash)
                if target._kind_id not in ids.function:
                    continue
                # is_function_constant_defined, whose argument comes next.
                asks = asks or (bool(self.constants) and target.spelling == "constant_defined")
                key = target.hash
                if key == function.hash:
                    loops = self._tail_calls(function) if loops is None else loops
                    if cursor.hash in loops:  # a loop in other words
                        continue
                if key not in self._synchronise:
                    users = tree.is_users(target)
                    self._synchronise[key] = None if users else _synchronises(target)
                    if not users and _logs(target):
                        self._logs.add(key)
                synchronises = self._synchronise[key]
                if key not in seen:
                    seen.add(key)
                    if synchronises is None:
                        out.callees.append(target.get_definition() or target)
                    else:
                        out.fibers = out.fibers or synchronises
                        out.logs = out.logs or key in self._logs
                if what in ids.call and synchronises is None:
                    self._rules.check_call(cursor, target)
            elif what in ids.variable:
                if "threadgroup" in self._tree.annotations(cursor):
                    out.static_bytes += (max(cursor.type.get_size(), 0) + 15) // 16 * 16
                    if not is_kernel:
                        self._tree.say(cursor, "a variable in the threadgroup address space must be declared in a kernel "
                                  "function")  # fmt: skip
                else:
                    self._rules.check_binding(cursor, cursor.type, tree.children(cursor)[-1:])
            # An object left of . and -> may be anywhere: member functions accept every address space.
            elif parent not in ids.member and tree.pointee_space(cursor) == 0:
                self._rules.check_pointer(cursor)
        return out

    def _tail_calls(self, function: Any) -> set[int]:
        """Calls of itself behind which a function has nothing to do: Metal's compiler takes them, as a loop."""
        tree, kind = self._tree, self._tree.kind
        found: set[int] = set()

        def look(statement: Any) -> None:
            inner = tree.children(statement)
            if statement.kind in (kind.COMPOUND_STMT, kind.RETURN_STMT, kind.UNEXPOSED_EXPR):
                for last in inner[-1:]:
                    look(last)
            elif statement.kind == kind.IF_STMT:
                for branch in inner[1:]:
                    look(branch)
            elif statement.kind == kind.CALL_EXPR and statement.referenced is not None:
                if statement.referenced.hash == function.hash:
                    found.add(statement.hash)
                    found.update(name.hash for name in inner[0].walk_preorder())  # its callees

        for child in tree.children(function):
            if child.kind == kind.COMPOUND_STMT:
                look(child)
        return found


# Their functions ask for the lane, or wait for the others.
_OF_COOPERATIVE_TENSORS = ("matmul2d", "cooperative_tensor", "cooperative_tensor_iterator")


def _synchronises(function: Any) -> bool:
    name = function.spelling
    if (
        name.startswith(
            ("simd_", "quad_", "simdgroup_", "__metal_simd_", "__metal_get_thread_index")
        )
        or name == "threadgroup_barrier"
    ):
        return True
    parent = function.semantic_parent
    if parent is not None and parent.spelling in _OF_COOPERATIVE_TENSORS:
        return True
    return "simdgroup_matrix" in function.type.spelling or name in ("reduce_rows", "reduce_columns")


def _logs(function: Any) -> bool:
    parent = function.semantic_parent
    return parent is not None and parent.spelling == "os_log" and function.spelling[:3] == "log"
