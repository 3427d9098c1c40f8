"""Elements: `this` of a member function knows no address space here, and so does not the result of operator[].

&x[i].y[j]             the pointer is given the address space of x, as MSL's operator[] of that space gives it
device T& r = x[i];    so is the reference
"""

from __future__ import annotations

import re
from bisect import bisect_left

from .flat import FlatText

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def elements(source: FlatText, names: set[str], helped: frozenset[tuple[int, str]]) -> None:
    """Wraps `&` and its operand, and values that become a reference.

    Args:
      names: the program's member functions of which one stands for those of all address spaces, `]` for operator[].
      helped: offsets of others of which clang said something: `address`, elements of the library's matrices and arrays;
        `reference`, all that are more than a value.
    """
    wanted = {offset for offset, how in helped if how in ("address", "reference")}
    if not names and not wanted:
        return
    tokens = source.tokens
    for i, token in enumerate(tokens[:-1]):
        if token.start in wanted and token.text != "&":
            operand, function = _Operand(source, i), "reference"
        elif token.text == "&" and _is_prefix(source, i):
            operand, function = _Operand(source, i + 1), "address"
            if not (operand.called & names or token.start in wanted):
                continue
        else:
            continue
        if operand.place:
            source.insert(token.start, f"_msl::{function}<decltype(({operand.place}))>(")
            source.insert(tokens[operand.end - 1].end, ")")


def elements_around(source: FlatText, offset: int) -> set[tuple[int, str]]:
    """Offsets of the values that `elements` may wrap in the statement around `offset`, and how."""
    tokens = source.tokens
    i = bisect_left(tokens, offset, key=lambda token: token.start)
    if i == len(tokens):
        return set()
    found = set()
    for j in range(source.statement_start(i), len(tokens)):
        token = tokens[j]
        body = token.text == "{" and tokens[j - 1].text in (")", "else", "do")
        if j > i and (token.text in (";", "}") or body or token.directive != tokens[i].directive):
            break
        if token.text == "&" and _is_prefix(source, j):
            if _Operand(source, j + 1).place:
                found.add((token.start, "address"))
        elif j and tokens[j - 1].text in ("=", "(", ",", "{", "return"):
            operand = _Operand(source, j)
            if operand.place and tokens[operand.end].text in (",", ")", "}", ";"):
                found.add((token.start, "reference"))
    return found


class _Operand:
    """A name or a parenthesis with its suffixes, from token i on: the operand of a `&`, or a whole expression.

    Attributes:
      end: index of the token behind it.
      called: the member functions that are called in it, `]` for operator[].
      place: it as an expression whose type has the address space; "" where there is nothing to help.
    """

    def __init__(self, source: FlatText, i: int):
        self._source = source
        self.called: set[str] = set()
        self.end, self.place = i, ""
        tokens = source.tokens
        if i >= len(tokens):
            return
        if tokens[i].text == "(":
            self.end = source.matching(i) + 1
            self.place = self._text(i, self.end)
        elif re.match(r"[A-Za-z_]", tokens[i].text):
            self.end = i + 1
            while tokens[self.end].text == "::":
                self.end += 2
            self.place = self._text(i, self.end)
        if self.place:
            self._follow()
        if not self.called and tokens[i].text == "(" and self.end == source.matching(i) + 1:
            self._inner(i)  # &(x[1])
        if not self.called:
            self.place = ""

    def _follow(self) -> None:
        """The suffixes of the first name or parenthesis."""
        tokens, source = self._source.tokens, self._source
        while self.end < len(tokens):
            i, text = self.end, tokens[self.end].text
            if text == "[":
                self.end = source.matching(i) + 1
                self.place = f"_msl::element({self.place}, {self._text(i + 1, self.end - 1)})"
                self.called.add("]")
            elif text == "(":
                self.end = source.matching(i) + 1
                self.place += self._text(i, self.end)
            elif text in (".", "->"):
                self._member(i)
            else:
                return

    def _member(self, i: int) -> None:
        tokens, source = self._source.tokens, self._source
        name = i + 1 + (tokens[i + 1].text == "template")
        self.end = name + 1
        member = f"{self.place}{tokens[i].text}{self._text(i + 1, self.end)}"
        if self.end < len(tokens) and tokens[self.end].text == "(":
            opens, self.end = self.end, source.matching(self.end) + 1
            of = f"*{self.place}" if tokens[i].text == "->" else self.place
            self.place = f"_msl::member_of({of}, {member}{self._text(opens, self.end)})"
            self.called.add(tokens[name].text)
        else:
            self.place = member

    def _inner(self, i: int) -> None:
        inner = _Operand(self._source, i + 1)
        if inner.place and inner.end == self.end - 1:
            self.place, self.called = inner.place, inner.called

    def _text(self, first: int, end: int) -> str:
        """These tokens on one line."""
        if first >= end:
            return ""
        tokens = self._source.tokens
        text = COMMENT.sub(" ", self._source.flat[tokens[first].start : tokens[end - 1].end])
        return re.sub(r"\\?\s+", " ", text)


def _is_prefix(source: FlatText, i: int) -> bool:
    """Whether the operator at i has no operand on its left."""
    before = source.tokens[i - 1].text if i else ""
    if before == ")":  # of a cast
        return i > 1 and source.tokens[i - 2].text == "*"
    return before == "return" or not re.match(r"[\w\])>\"']", before)
