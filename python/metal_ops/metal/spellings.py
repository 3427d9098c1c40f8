"""Constructs that MSL spells in another way than C++: member functions of address spaces, arrays as parameters,
literals, ?:."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from .flat import FlatText
from .tokens import Token

SPACES = frozenset({"device", "constant", "threadgroup", "thread"})
COHERENCE = frozenset({"threadgroup", "device", "system"})
UNSIGNED = frozenset(
    "uint uint32_t ushort uint16_t uchar uint8_t size_t ulong unsigned int short long const".split()
)
BEHIND_PARAMETERS = ("{", ":", ";", "noexcept", "->", "=")
LITERAL = re.compile(
    r"(?=\.?\d)(0[xX][\da-fA-F.]+[pP][+-]?\d+|\d*\.?\d*(?:[eE][+-]?\d+)?)(H|bf|BF)"
)
# Without a suffix: a float in MSL. clang's own switch for it forgets itself in expressions that a template repeats.
FLOAT = re.compile(
    r"(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|\d+[eE][+-]?\d+|0[xX]([\da-fA-F]+\.?|[\da-fA-F]*\.[\da-fA-F]+)[pP][+-]?\d+"
)
# `long` has all bits that there are, and literals of other languages' `long long` are its own.
LONG_LITERAL = re.compile(r"(0[xX][\da-fA-F']+|\d[\d']*)([uU]?)(ll|LL)([uU]?)")
# A macro that gives its argument a suffix.
SUFFIXING = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\((?:[^\n]|\\\n)*?##[ \t]*[fFhH]\b", re.M)
# Where a text is the compiler's, and no object in constant memory.
NO_STRING_OBJECT = frozenset(
    """static_assert _Static_assert asm __asm __asm__ annotate section deprecated unavailable availability message
    _Pragma sizeof alignas __attribute__ host_name volatile __volatile__ __volatile""".split()
)


@dataclass(frozen=True)
class _Member:
    """A member function with an address space behind its parameters, as token indices; `space` is its word's."""

    start: int
    opens: int
    space: int
    key: tuple[int, str]
    returned: tuple[str, ...]  # the address spaces in its return type


def member_spaces(source: FlatText) -> set[str]:
    """`T f() const device` and its twins for other spaces: one remains, as `this` accepts every space here.

    Where they return references, each into its own space, the one that remains returns a reference to anywhere.

    Returns:
      The names of these, `]` for operator[].
    """
    members = _members(source)
    if not members:
        return set()
    seen = _unqualified_members(source)
    twins: dict[tuple[int, str], set[tuple[str, ...]]] = {}
    for member in members:
        twins.setdefault(member.key, set()).add(member.returned)
    tokens = source.tokens
    for member in members:
        token = tokens[member.space]
        end = _definition_end(source, member.space)
        if member.key in seen:
            source.replace(tokens[member.start].start, tokens[end].end, "", token.directive)
            continue
        seen.add(member.key)
        source.replace(token.start, token.end, "", token.directive)
        if len(twins[member.key]) > 1:
            for word in tokens[member.start : member.opens]:
                if word.text in SPACES:
                    anywhere = "const thread" if word.text == "constant" else "thread"
                    source.replace(word.start, word.end, anywhere)
        elif member.returned and member.returned != ("thread",):
            _return_places(source, member.space, end, member.returned[0])
    opened = {member.opens for member in members if len(twins[member.key]) > 1}
    return {tokens[opens - 1].text for opens in opened}


def _members(source: FlatText) -> list[_Member]:
    tokens = source.tokens
    found = []
    for i, token in enumerate(tokens):
        if token.text not in SPACES or not token.class_id or token.parens or i < 2:
            continue
        j = i - 1
        while tokens[j].text in ("const", "volatile"):
            j -= 1
        behind = tokens[i + 1].text == "const"  # `f() device const` is `f() const device`
        if tokens[j].text != ")" or tokens[i + 1 + behind].text not in BEHIND_PARAMETERS:
            continue
        start, opens = source.statement_start(j), _opening(source, j)
        words = [t.text for t in tokens[start:opens]]
        places = "&" in words or "*" in words
        returned = tuple(w for w in words if w in SPACES) if places else ()
        constant = behind or "const" in [t.text for t in tokens[j:i]]
        found.append(_Member(start, opens, i, _member_key(source, j, constant), returned))
    return found


def _member_key(source: FlatText, close: int, constant: bool) -> tuple[int, str]:
    """The text that twins share: all but the address spaces, up to the parenthesis that closes the parameters."""
    tokens = source.tokens
    start, opens = source.statement_start(close), _opening(source, close)
    words = [t.text for t in tokens[start:opens] if t.text not in (*SPACES, "const")]
    words += [t.text for t in tokens[opens : close + 1]]
    return tokens[close].class_id, " ".join(words) + (" const" if constant else "")


def _opening(source: FlatText, close: int) -> int:
    """Index of the parenthesis that the one at `close` closes."""
    depth = 0
    for j in range(close, 0, -1):
        depth += (source.tokens[j].text == ")") - (source.tokens[j].text == "(")
        if depth == 0:
            return j
    return close


def _definition_end(source: FlatText, i: int) -> int:
    """Index of the last token of the member function that token i is in the head of."""
    tokens = source.tokens
    end = i
    while tokens[end].text not in (";", "{"):
        if tokens[end].text == "(":
            end = source.matching(end)
        end += 1
        # a member initialiser with braces: x{1}
        if tokens[end].text == "{" and ":" in [t.text for t in tokens[i:end]]:
            after = source.matching(end)
            if tokens[after + 1].text in (",", "{"):
                end = after + 1
    return source.matching(end) if tokens[end].text == "{" else end


def _return_places(source: FlatText, first: int, last: int, space: str) -> None:
    """A reference or pointer that a member function returns lies where the object does: clang cannot know."""
    tokens = source.tokens
    for i in range(first, last):
        if tokens[i].text != "return":
            continue
        end = i
        while tokens[end].text != ";" and end < last:
            end = source.matching(end) if tokens[end].text in ("(", "[", "{") else end
            end += 1
        source.insert(tokens[i].end, f" _msl::in_{space}(")
        source.insert(tokens[end].start, ")")


def _unqualified_members(source: FlatText) -> set[tuple[int, str]]:
    """The keys of the member functions without a space."""
    tokens = source.tokens
    found = set()
    for i, token in enumerate(tokens[:-1]):
        if token.text != ")" or not token.class_id or token.parens != 1:
            continue
        constant = tokens[i + 1].text == "const"
        if tokens[i + 1 + constant].text in BEHIND_PARAMETERS:
            found.add(_member_key(source, i, constant))
    return found


def coherent(source: FlatText) -> None:
    """`coherent device T*`, `coherent(device)`, `coherent(system)`: memory is coherent here anyway."""
    tokens = source.tokens
    for i, token in enumerate(tokens[:-3]):
        if token.text != "coherent":
            continue
        words = [t.text for t in tokens[i : i + 4]]
        end = i
        if words[1] == "(" and words[2] in COHERENCE and words[3] == ")":
            end = i + 3
        elif not {words[1], tokens[i - 1].text} & {"device", "const", "volatile"}:
            continue  # a name of the user's own
        source.replace(token.start, tokens[end].end, "", token.directive)
    for i, token in enumerate(tokens):  # texture2d<float, access::write, memory_coherence_device>
        if token.text.startswith("memory_coherence_") and tokens[i - 1].text == ",":
            source.replace(tokens[i - 1].start, token.end, "", token.directive)


def array_parameters(source: FlatText) -> None:
    """`constant int shape[3]` as a parameter: clang wants the pointer that it is."""
    tokens = source.tokens
    for i, token in enumerate(tokens):
        if token.text not in ("device", "constant", "threadgroup") or not token.parens:
            continue
        j, angle = i + 1, 0
        while j + 1 < len(tokens) and tokens[j].parens >= token.parens:
            text = tokens[j].text
            angle += (text == "<") - (text == ">")
            if text in ("*", "&", "(", ")", "=", ";", "[") or (text == "," and angle == 0):
                break
            j += 1
        name = tokens[j - 1]
        if (
            tokens[j].text != "["
            or tokens[j + 1].text == "["
            or not re.match(r"[A-Za-z_]", name.text)
            or j - 1 == i
        ):
            continue
        end = source.matching(j)
        deeper = tokens[end + 1].text == "[" and tokens[end + 2].text != "["
        source.replace(
            name.start,
            tokens[end].end,
            f"(*{name.text})" if deeper else f"*{name.text}",
            token.directive,
        )


def vector_sizes(source: FlatText) -> None:
    """`template <class T, uint n> void f(vec<T, n> v)`: Metal's compiler finds n of any integer type, clang of vec's own."""
    tokens = source.tokens
    for i, token in enumerate(tokens[:-1]):
        if token.text != "template" or tokens[i + 1].text != "<":
            continue
        close = _angle_end(source, i + 1)
        end = close
        while end + 1 < len(tokens) and tokens[end].text not in ("{", ";", "template"):
            end += 1
        text = [t.text for t in tokens[close:end]]
        sizes = {
            text[k + 2]
            for k in range(len(text) - 4)
            if text[k + 1] == ","
            and text[k + 3] == ">"
            and "<" in text[max(0, k - 4) : k]
            and "vec" in text[max(0, k - 5) : k]
        }
        start = i + 2
        for j in range(i + 2, close + 1):
            if tokens[j].text not in (",", ">"):
                continue
            words = [t.text for t in tokens[start:j]]
            if len(words) > 1 and words[-1] in sizes and set(words[:-1]) <= UNSIGNED:
                source.replace(tokens[start].start, tokens[j - 2].end, "int", token.directive)
            start = j + 1


def _angle_end(source: FlatText, i: int) -> int:
    """Index of the > that closes the < at i."""
    depth = 0
    for j in range(i, len(source.tokens)):
        text = source.tokens[j].text
        depth += (text == "<") - (text == ">")
        if depth == 0 or text in (";", "{"):
            return j
    return i


def literals(source: FlatText) -> None:
    """1.0 is a float. 1.0H and 1.0bf have suffixes that C++ does not let a library define."""
    tokens = source.tokens
    suffixing = set(SUFFIXING.findall(source.flat))
    skip_until = 0
    for i, token in enumerate(tokens):
        if i < skip_until:
            continue
        if token.text in suffixing and i + 1 < len(tokens) and tokens[i + 1].text == "(":
            skip_until = source.matching(i + 1)
        elif FLOAT.fullmatch(token.text):
            source.insert(token.end, "f")
        elif match := LONG_LITERAL.fullmatch(token.text):
            source.replace(match.start(3) + token.start, token.end, "l" + match[4])
        elif match := LITERAL.fullmatch(token.text):
            digits, suffix = match.groups()
            text = f"{digits}h" if suffix == "H" else f"bfloat({digits}f)"
            source.replace(token.start, token.end, text)


def strings(source: FlatText) -> None:
    """A text is an array in constant memory, where it is an argument or an initial value."""
    tokens = source.tokens
    # Macros want it as it is: for a kernel's name, for a message.
    macros = set(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(", source.flat, re.M))
    for i, token in enumerate(tokens):
        if not token.text.startswith('"') or i == 0:
            continue
        end = i + 1  # of a text in several pieces
        while end < len(tokens) and tokens[end].text.startswith('"'):
            end += 1
        before, after = tokens[i - 1].text, tokens[end].text if end < len(tokens) else ""
        if before == "=" and tokens[i - 2].text == "]":
            continue  # the array itself
        if before not in ("(", ",", "{", "=", "return") or after not in (")", ",", "}", ";"):
            continue
        caller = _caller(source, i)
        if caller in NO_STRING_OBJECT or caller in macros:
            continue
        source.insert(tokens[end - 1].end, "_msl_text")


def _caller(source: FlatText, i: int) -> str:
    """The word before the parenthesis around token i, "" if there is none."""
    depth = 0
    for j in range(i - 1, 0, -1):
        text = source.tokens[j].text
        if text in (";", "{", "}") and depth == 0:
            return ""
        depth += (text in ")]}") - (text in "([{")
        if depth < 0:
            return source.tokens[j - 1].text
    return ""


def helps(source: FlatText, helped: frozenset[tuple[int, str]]) -> None:
    """Wraps the expressions at these offsets into calls of the library's function, where clang is at a loss without:

    copied: the operands of a ?:, a vector and one in const device or constant memory, which have no common type;
    beside_bfloat: those of a ?:, a bfloat and an integer, which have two;
    braced: a vector's initial values, fewer than it has components or of several types.
    """
    tokens = source.tokens
    functions = dict(sorted(helped, reverse=True))  # functions that copy as well come last
    for i, token in enumerate(tokens):
        function = functions.get(token.start)
        if function == "braced":
            opens = next((j for j in range(i, i + 3) if tokens[j].text == "{"), None)
            if opens is not None:
                close = tokens[source.matching(opens)]
                equals = "" if opens == i or tokens[opens - 1].text == "=" else "= "
                source.replace(tokens[opens].start, tokens[opens].end, f"{equals}_msl::braced(")
                source.replace(close.start, close.end, ")")
        elif function and token.text == "?":
            colon = _operand_end(source, i + 1)
            if tokens[colon].text != ":":
                continue
            end = _operand_end(source, colon + 1)
            for first, last in ((i, colon), (colon, end)):
                source.insert(tokens[first].end, f" _msl::{function}(")
                source.insert(tokens[last - 1].end, ")")


def conditionals_around(source: FlatText, offset: int) -> list[int]:
    """Offsets of the conditional operators in the statement around `offset` and in the macros that it names."""
    tokens = source.tokens
    i = bisect_left(tokens, offset, key=lambda token: token.start)
    if i == len(tokens):
        return []
    start, end = source.statement_start(i), i
    while end < len(tokens) and tokens[end].text not in (";", "{", "}"):
        end += 1
    macros = _macros(source)
    found, wanted = [], tokens[start:end]
    while wanted:
        found += [token.start for token in wanted if token.text == "?"]
        wanted = [inner for token in wanted for inner in macros.pop(token.text, ())]
    return found


def _macros(source: FlatText) -> dict[str, list[Token]]:
    """The tokens of each macro's definitions."""
    bodies: dict[int, list[Token]] = {}
    for token in source.tokens:
        if token.directive:
            bodies.setdefault(token.directive, []).append(token)
    macros: dict[str, list[Token]] = {}
    for body in bodies.values():
        for name in body[2:3]:  # behind `#` and `define`
            macros.setdefault(name.text, []).extend(body)
    return macros


def _operand_end(source: FlatText, i: int) -> int:
    """Index of the token after the operand of ?: that starts at i."""
    nested = 0
    directive = source.tokens[i].directive
    while i < len(source.tokens) and source.tokens[i].directive == directive:
        text = source.tokens[i].text
        if text in ("(", "[", "{"):
            i = source.matching(i)
        elif text == "?":
            nested += 1
        elif text == ":":
            if not nested:
                return i
            nested -= 1
        elif text in (")", "]", "}", ",", ";"):
            return i
        i += 1
    return i
