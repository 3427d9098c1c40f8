"""What a kernel reaches through calls: barriers, threadgroup memory, recursion, address spaces inside templates."""

from __future__ import annotations

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
    static_bytes: int = 0


class Calls:
    """The functions of one syntax tree, each scanned once."""

    def __init__(self, tree: SyntaxTree, rules: Rules):
        self._tree = tree
        self._rules = rules
        self._functions: dict[int, _Function] = {}

    def follow(self, kernel: Kernel, root: Any) -> None:
        """Adds to `kernel` what its function, `root`, and all that it calls need."""
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
            kernel.static_bytes += scanned.static_bytes
            for callee in scanned.callees:
                visit(callee, False)
            path.pop()

        visit(root, True)

    def _scan(self, function: Any, is_kernel: bool) -> _Function:
        out = _Function()
        seen: set[int] = set()
        kind = self._tree.kind
        stack = [(child, False) for child in function.get_children()]
        while stack:
            cursor, is_object = stack.pop()
            # What lies left of . and -> may be anywhere: member functions accept every address space.
            stack.extend(
                (child, cursor.kind == kind.MEMBER_REF_EXPR) for child in cursor.get_children()
            )
            if cursor.kind in (kind.CALL_EXPR, kind.DECL_REF_EXPR, kind.MEMBER_REF_EXPR):
                target = cursor.referenced
                if target is None:
                    continue
                if target.kind in (kind.FUNCTION_DECL, kind.CXX_METHOD, kind.CONSTRUCTOR, kind.CONVERSION_FUNCTION,
                                   kind.DESTRUCTOR):  # fmt: skip
                    if not self._tree.is_users(target):
                        out.fibers = out.fibers or _synchronises(target)
                    else:
                        target = target.get_definition() or target
                        if target.hash not in seen:
                            seen.add(target.hash)
                            out.callees.append(target)
                if cursor.kind == kind.CALL_EXPR and target is not None:
                    self._rules.check_call(cursor, target)
            elif cursor.kind == kind.VAR_DECL:
                if "threadgroup" in self._tree.annotations(cursor):
                    out.static_bytes += (max(cursor.type.get_size(), 0) + 15) // 16 * 16
                    if not is_kernel:
                        self._tree.say(cursor, "a variable in the threadgroup address space must be declared in a kernel "
                                  "function")  # fmt: skip
                else:
                    self._rules.check_binding(cursor, cursor.type, list(cursor.get_children())[-1:])
            elif cursor.kind == kind.UNEXPOSED_EXPR and not is_object:
                self._rules.check_pointer(cursor)
        return out


def _synchronises(function: Any) -> bool:
    name = function.spelling
    if (
        name.startswith(("simd_", "quad_", "simdgroup_", "__metal_simd_"))
        or name == "threadgroup_barrier"
    ):
        return True
    return "simdgroup_matrix" in function.type.spelling
