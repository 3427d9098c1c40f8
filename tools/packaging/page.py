"""The page that a release is taken from: for people, and for `pip install --find-links`."""

from __future__ import annotations

import html
import urllib.parse
from collections.abc import Sequence
from typing import NamedTuple

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "pre{background:#8881;padding:.7rem;overflow:auto}td,th{padding:.2rem .8rem .2rem 0;text-align:left;"
    "vertical-align:top}code.sum{font-size:70%;word-break:break-all}:root{color-scheme:light dark}"
)


class Row(NamedTuple):
    """A wheel: its name, bytes, SHA-256, TensorFlow's release and Pythons."""

    name: str
    bytes: int
    sha256: str
    tensorflow: str
    pythons: Sequence[str]

    @property
    def holds(self) -> str:
        if "hostmetal" in self.name:
            return "hostmetal and the METAL device; needs the above and GNUstep 1.28 (Debian 12)"
        return "ops, layers and programs"


def render(version: str, commit: str, rows: Sequence[Row], url: str, trial: bool) -> str:
    """The page, as HTML.

    Args:
      version: The release's.
      commit: The one that the wheels were made of.
      rows: The wheels.
      url: Where they lie, with a slash at the end; "" for beside the page.
      trial: Whether they are of a trial, and for the machine that made them.
    """
    release = rows[0].tensorflow
    title = f"metal_ops {version}" + (" (a trial, for the machine that made it)" if trial else "")
    lines = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style></head><body>',
        f"<h1>{title}</h1>",
        "<p>TensorFlow ops and a TensorFlow device in Metal. Linux on x86-64 with glibc 2.35 or newer (Debian 12, "
        "Ubuntu 22.04); macOS builds from source.</p>",
        "<h2>Install</h2><p>With the address of this page for PAGE, into a virtual environment:</p>",
        "<pre>",
        f"pip install --find-links PAGE 'tensorflow-metal-ops=={version}+tf{release}'          # ops on the CPU",
        "sudo apt-get install libgnustep-base1.28 libobjc4                           # for the next line",
        f"pip install --find-links PAGE 'tensorflow-metal-ops[metal]=={version}+tf{release}'   # and the Metal half",
        "python -m metal_ops doctor                                                  # what works here",
        "</pre>",
        "<p>The end of the version is TensorFlow's release: the libraries run in no other.</p>",
        "<h2>Wheels</h2><table><tr><th>file<th>TensorFlow<th>Python<th>MiB<th>holds</tr>",
    ]
    for row in rows:
        link = html.escape(f"{url}{urllib.parse.quote(row.name)}#sha256={row.sha256}", quote=True)
        lines.append(
            f'<tr><td><a href="{link}">{html.escape(row.name)}</a><br><code class="sum">'
            f"{row.sha256}</code><td>{row.tensorflow}<td>{', '.join(row.pythons)}<td>{row.bytes / 2**20:.1f}"
            f"<td>{row.holds}</tr>"
        )
    lines += [
        "</table>",
        "<p>Downloaded by hand: <code>sha256sum -c SHA256SUMS</code> beside the files. Each wheel was installed into a "
        f"new environment and run there. Made of {html.escape(commit or 'no commit')}.</p>",
        "</body></html>",
        "",
    ]
    return "\n".join(lines)
