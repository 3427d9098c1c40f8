"""A Mac's assembly in ELF's words: files that embed a library of shaders, or its source, by `.incbin`.

Mach-O has sections by two names, and an underscore before the names of C. Other assembly is left as it is.
"""

from __future__ import annotations

import re

_SECTION = re.compile(r"(?<![\w.])\.section\s+(__\w+)\s*,\s*(__\w+)[^\n;]*")
# Strings and comments, in which nothing is changed, or a word.
_WORD = re.compile(r'"(?:\\.|[^"\\\n])*"|/\*.*?\*/|//[^\n]*|#[^\n]*|(?P<word>[.\w$@]+)', re.DOTALL)
_DECLARED = re.compile(
    r"(?<![\w.])\.(?:globl|global|private_extern|weak_definition|extern)\s+(_\w+)"
)
_PRIVATE = re.compile(r"(?<![\w.])\.private_extern\s+(\w+)")
_LABEL = re.compile(r"(?:^|;)[ \t]*(_\w+)[ \t]*:", re.MULTILINE)
# Directives that have another name or, as .align, another meaning on Linux.
_DIRECTIVES = {
    ".align": ".p2align",
    ".const": '.section "__TEXT,__const","a"',
    ".const_data": '.section "__DATA,__const","aw"',
    ".subsections_via_symbols": "",
    ".weak_definition": ".weak",
}

# Linkers on Linux want to be told.
NO_CODE_ON_THE_STACK = '\n.section .note.GNU-stack,"",%progbits\n'


def translated(text: str) -> str | None:
    """The text for a Linux assembler, line by line; None where no section is a Mac's.

    Clang gives a variable with `section("__DATA,__x")` that name on Linux, too.
    """
    if not _SECTION.search(text):
        return None
    names = {*_DECLARED.findall(text), *_LABEL.findall(text)}

    def word(match: re.Match[str]) -> str:
        found = match["word"]
        if found in names:
            return found[1:]
        return _DIRECTIVES.get(found, match[0])

    text = _PRIVATE.sub(r".globl \1; .hidden \1", text)
    return _SECTION.sub(_section, _WORD.sub(word, text)) + NO_CODE_ON_THE_STACK


def _section(match: re.Match[str]) -> str:
    segment, name = match[1], match[2]
    rights = "ax" if name in ("__text", "__stubs") else "a" if segment == "__TEXT" else "aw"
    return f'.section "{segment},{name}","{rights}"'
