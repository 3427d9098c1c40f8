"""Google-style docstrings as Markdown."""

from __future__ import annotations

import inspect
import re
import textwrap

SECTIONS = ("Args", "Returns", "Raises", "Attributes", "Example", "Input", "Output")
HEAD = re.compile(rf"^({'|'.join(SECTIONS)}):\s*(.*)$")
ITEM = re.compile(r"^(\*{0,2}\w[\w.\[\], ]*): (.*)$", re.S)


def escape(text: str) -> str:
    """Text outside of code that Markdown must not take for markup."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part
        if part.startswith("`")
        else re.sub(r"([*|])", r"\\\1", part.replace("<", "&lt;")).replace("[", "\\[")
        for part in parts
    )


def markdown(text: str) -> str:
    """The docstring's paragraphs, its arguments as a list, its example as code."""
    blocks: list[str] = []
    section, lines = "", []

    def finish() -> None:
        body = textwrap.dedent("\n".join(lines)).strip("\n")
        if not body.strip() or (section and body.strip() == "None."):
            return
        if section == "Example":
            blocks.append(f"```pycon\n{body}\n```")
        elif section in ("Args", "Attributes", "Raises"):
            blocks.append(f"**{section}**\n\n{_items(body)}")
        elif section == "Returns" and (found := re.match(r"(.*?:?)\n\s*\n(\w+: .*)$", body, re.S)):
            # TensorFlow's way to describe several outputs
            blocks.append(f"**{section}**: {escape(_joined(found[1]))}\n\n{_items(found[2])}")
        elif section:
            blocks.append(f"**{section}**: {escape(_joined(body))}")
        else:
            blocks.append(_paragraphs(body))

    for line in inspect.cleandoc(text).splitlines():
        if found := HEAD.match(line):
            finish()
            section, lines = found[1], [found[2]] if found[2] else []
        elif section and line and not line.startswith(" "):
            finish()
            section, lines = "", [line]
        else:
            lines.append(line)
    finish()
    return "\n\n".join(blocks)


def summary(text: str | None) -> str:
    """The docstring's first paragraph, for a row of a table."""
    return escape(_joined(re.split(r"\n\s*\n", inspect.cleandoc(text or ""))[0]))


def _joined(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _paragraphs(text: str) -> str:
    """Indented paragraphs and tables are kept as they are laid out."""
    result = []
    for paragraph in re.split(r"\n\s*\n", text):
        lines = paragraph.splitlines()
        if all(line.startswith("  ") for line in lines):
            result.append(f"```text\n{inspect.cleandoc(paragraph)}\n```")
        elif all(line.startswith("|") for line in lines):
            result.append(paragraph)
        elif re.match(r"- ", paragraph):
            items = re.split(r"\n(?=- )", paragraph)
            result.append("\n".join("- " + escape(_joined(item[2:])) for item in items))
        else:
            result.append(escape(_joined(paragraph)))
    return "\n\n".join(result)


def _items(body: str) -> str:
    items: list[str] = []
    for line in body.splitlines():
        if line.startswith(" ") and items:
            items[-1] += " " + line.strip()
        elif line.strip():
            items.append(line.strip())
    result = []
    for item in items:
        if found := ITEM.match(item):
            result.append(f"- `{found[1]}`: {escape(_joined(found[2]))}")
        else:
            result.append(f"- {escape(_joined(item))}")
    return "\n".join(result)
