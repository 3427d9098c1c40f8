"""Counts habits of wording in comments, docstrings, messages and pages; docs/style.md has the replacements.

`make lint` fails where a room has more of them than its ceiling; `python tools/words.py kernels` lists those of a room.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# 2683 in all at 702cde52, before sentences were rewritten. A ceiling goes down with its room's count, never up.
CEILINGS = {
    "benchmarks": 4,
    "device": 1,
    "docs": 3,
    "examples": 3,
    "graph": 6,
    "hostmetal": 4,
    "kernels": 2,
    "python": 12,
    "tests": 34,
    "tools": 9,
}

UNITS = r"(?:instruction set|thread|lane|row|channel|call|step|graph|element|file|token|byte|weight|kernel|head)\b"
HABITS = re.compile(
    r"\b(?:What|Who|Whoever|Of)\b(?![^.;|]*\?)"  # no questions
    r"|\b(?:of|and|for|with|from|by|to|than|as|on|in|or)\s+what\b(?![^.;|]*\?)|\bwhat else\b"
    r"|\b(?i:somebody|nobody|whoever|anybody)\b|\bneeds?\s+not\b"
    r"|\b(?:has|have|had)\s+not\b(?! (?:\w+ed|\w+n|yet|come|become|made|run|met|kept|left|lost|told|set|put)\b)"
    rf"|\b(?:[Oo]nce|[Tt]wice|[Oo]ne\s+thread|seconds|bytes|bits|ms|[KMG]i?B)\s+an?\s+{UNITS}"
)
STRING = r'"(?:\\.|[^"\\\n])*"'
C = re.compile(rf"//.*|/\*[\s\S]*?\*/|{STRING}")
HASH = re.compile(r"(?:^|\s)#(?!!).*", re.M)
PROSE = {
    ".py": re.compile(rf"\"\"\"[\s\S]*?\"\"\"|{STRING}|'(?:\\.|[^'\\\n])*'|#.*"),
    ".md": re.compile(r"^```[\s\S]*?^```|^#.*|.+", re.M),
    **dict.fromkeys((".h", ".cc", ".mm", ".metal", ".js"), C),
    **dict.fromkeys(("", ".mk", ".sh", ".toml", ".txt", ".bzl", ".yml"), HASH),
}
# Generated from other texts, recorded, about the past, or about the habits.
PAGES = "api|ops|support|errors|fusions|examples|mutation|metal-language|dtypes|style"
LEFT_OUT = re.compile(
    rf"benchmarks/results/|findings/|CHANGELOG|tools/words\.py|tests/test_words\.py|.*\.pyi$|docs/(?:{PAGES})\.md"
)


def habits(suffix: str, text: str) -> Iterator[str]:
    """The habits in a text, each with some words around it."""
    prose = "\n".join(
        m[0]
        for m in PROSE[suffix].finditer(text)
        if suffix != ".md" or not m[0].startswith(("```", "#"))
    )
    for m in HABITS.finditer(prose):
        yield " ".join(prose[max(m.start() - 30, 0) : m.end() + 50].split())


def main(asked: list[str]) -> int:
    command = ["git", "ls-files", "-z", "--", *asked]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {}
    for path in (ROOT / name for name in names.split("\0") if name and not LEFT_OUT.match(name)):
        if path.suffix in PROSE and path.is_file() and not path.is_symlink():
            name = path.relative_to(ROOT)
            of_file = [
                f"{name}: ... {words}"
                for words in habits(path.suffix, path.read_text(errors="replace"))
            ]
            found.setdefault(name.parts[0], []).extend(of_file)
    over = {
        room: len(places) for room, places in found.items() if len(places) > CEILINGS.get(room, 0)
    }
    print(*(place for places in found.values() for place in places if asked), sep="\n", end="")
    for room, count in over.items():
        most = CEILINGS.get(room, 0)
        print(
            f"{room}: {count} habits of wording, at most {most}: docs/style.md; `python tools/words.py {room}`"
        )
    return bool(over) and not asked


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
