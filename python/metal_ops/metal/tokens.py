"""A flat text's tokens, with how deep they lie: all that the rewriting knows of C++."""

from __future__ import annotations

import re
from dataclasses import dataclass

TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\f\v]|\\\n)+)
      | (?P<newline>\n)
      | (?P<comment>//(?:[^\\\n]|\\.|\\\n)*|/\*.*?\*/)
      | (?P<string>(?:u8|[uUL])?R"(?P<raw>[^()\\\s]*)\(.*?\)(?P=raw)"|(?:u8|[uUL])?"(?:[^"\\\n]|\\.|\\\n)*")
      | (?P<char>'(?:[^'\\\n]|\\.)+')
      | (?P<word>[A-Za-z_]\w*)
      | (?P<number>\.?\d(?:[eEpP][+-]|['\w.])*)
      | (?P<mark>::|->|\+\+|--|&&|\|\||\#\#|.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class Token:
    """A token of the flat text: offsets, whether it is part of a directive (a macro's body), nesting before it."""

    text: str
    start: int
    end: int
    directive: int  # 0, or the number of the #define it belongs to
    parens: int = 0
    in_function: bool = False
    class_id: int = 0  # number of the class body right around it, else 0


def tokenize(flat: str) -> list[Token]:
    """Tokens without comments and directives other than #define, with their nesting."""
    tokens: list[Token] = []
    braces: list[str] = []
    class_ids: list[int] = []
    parens = 0
    saved: list[tuple[list[str], list[int], int]] = []
    defines = classes = 0
    at_line_start = True
    position = 0
    head = 0  # index of the first token of the current declaration

    def add(text: str, start: int, end: int) -> None:
        nonlocal parens, classes, head
        token = Token(text, start, end, 0, parens)
        token.in_function = "function" in braces
        token.class_id = class_ids[-1] if class_ids and braces[-1] == "class" else 0
        tokens.append(token)
        if text in ("(", "["):
            parens += 1
        elif text in (")", "]"):
            parens = max(0, parens - 1)
        elif text == "{":
            words = [t.text for t in tokens[head:-1] if not t.directive]
            if "function" in braces:
                kind = "function"
            elif "namespace" in words or ("extern" in words and len(words) == 2):
                kind = "namespace"
            elif {"class", "struct", "union"} & set(_outside_angles(words)) and ")" not in words[
                -1:
            ]:
                kind = "class"
            elif "(" in words:
                kind = "function"
            else:
                kind = "other"
            braces.append(kind)
            classes += kind == "class"
            class_ids.append(classes if kind == "class" else 0)
            head = len(tokens)
        elif text == "}":
            if braces:
                braces.pop()
                class_ids.pop()
            head = len(tokens)
        elif text == ";" and parens == 0:
            head = len(tokens)

    while position < len(flat):
        if (
            at_line_start
            and flat[position] == "#"
            or (at_line_start and re.match(r"[ \t]*#", flat[position : position + 80]))
        ):
            end = position
            while True:
                end = flat.find("\n", end)
                if end < 0:
                    end = len(flat)
                    break
                if flat[end - 1] != "\\":
                    break
                end += 1
            word = re.match(r"[ \t]*#[ \t]*(\w*)", flat[position:end])
            name = word.group(1) if word else ""
            if name == "define":
                defines += 1
                tokens += _define_tokens(flat, position, end, defines)
            elif name in ("if", "ifdef", "ifndef"):
                saved.append((braces[:], class_ids[:], parens))
            elif name in ("else", "elif", "elifdef", "elifndef") and saved:
                braces[:], class_ids[:], parens = saved[-1][0][:], saved[-1][1][:], saved[-1][2]
            elif name == "endif" and saved:
                saved.pop()
            position = end
            at_line_start = False
            continue
        match = TOKEN.match(flat, position)
        assert match
        position = match.end()
        kind = match.lastgroup
        if kind == "newline":
            at_line_start = True
        elif kind == "comment" or kind == "space":
            at_line_start = at_line_start and kind == "space"
        else:
            at_line_start = False
            add(match.group(), match.start(), match.end())
    return tokens


def _outside_angles(words: list[str]) -> list[str]:
    """Words outside <...>, so that `template <class T> void f()` is no class."""
    out, depth = [], 0
    for word in words:
        if word == "<":
            depth += 1
        elif word == ">":
            depth = max(0, depth - 1)
        elif depth == 0:
            out.append(word)
    return out


def _define_tokens(flat: str, start: int, end: int, number: int) -> list[Token]:
    """The tokens of a #define: nesting counts from the start of its body."""
    out: list[Token] = []
    position, parens = start, 0
    while position < end:
        match = TOKEN.match(flat, position, end)
        if not match:
            break
        position = match.end()
        if match.lastgroup in ("space", "newline", "comment"):
            continue
        text = match.group()
        token = Token(text, match.start(), match.end(), number, parens)
        if text in ("(", "["):
            parens += 1
        elif text in (")", "]"):
            parens = max(0, parens - 1)
        out.append(token)
    return out
