"""The pages of benchmarks/results, one per group: `python -m benchmarks --record` writes them, the
documentation's build and tests read them. They are the record itself; there is no other file. Needs nothing but Python.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"
# Besides pages of groups: what the program writes into the folder's first page.
OVERVIEW = "README.md"
# How the rows of other people's code begin. All others are ours, or the machine's.
OTHERS = ("TensorFlow", "Keras", "JAX", "PyTorch")
HEAD = """\
Recorded by `make bench ARGS=--record`. The contenders of a case took turns within one run; quartiles are in ms, too.
`time / ours` above 1: the first, ours, is faster; bold: it loses to other people's code. `load` is the machine's before
the case; 1 to 2 is the measuring itself. A contender's description is not repeated."""
COLUMNS = (
    *("case", "contender", "median ms", "quartiles", "rate", "time / ours", "runs", "load"),
    "what it is",
)
RULE = "|---|---|--:|--:|--:|--:|--:|--:|---|"
FAILED = "failed"
UNKNOWN = "a commit that was not recorded"


@dataclass(frozen=True)
class Row:
    """A contender's figures as they are shown, or why there are none: then `median` is FAILED and `note` says it."""

    contender: str
    median: str
    quartiles: str = ""
    rate: str = ""
    ratio: str = ""
    runs: str = ""
    note: str = ""

    @property
    def loses(self) -> bool:
        """Whether it is other people's code, and ours loses to it."""
        return self.contender.startswith(OTHERS) and self.median != FAILED and float(self.ratio) < 1


@dataclass(frozen=True)
class Run:
    """The time and machine of a run."""

    commit: str  # "": not recorded
    date: str
    machine: tuple[tuple[str, str], ...]

    @property
    def heading(self) -> str:
        return f"At {self.commit}, {self.date}" if self.commit else f"At {UNKNOWN}"


@dataclass(frozen=True)
class Recorded:
    """A case as it was measured."""

    title: str
    run: Run
    load: str = ""
    rows: tuple[Row, ...] = field(default=())


def render(group: str, cases: Iterable[Recorded]) -> str:
    """A group's page: a table for each run, cases in the order in which they come."""
    runs: dict[Run, list[Recorded]] = {}
    for case in cases:
        runs.setdefault(case.run, []).append(case)
    lines = [f"# Benchmark: {group}", "", HEAD]
    for run, of_run in runs.items():
        on = "; ".join(f"{key}: {value}" for key, value in run.machine)
        lines += ["", f"## {run.heading}", "", f"On {on}.", ""]
        lines += [f"| {' | '.join(COLUMNS)} |", RULE]
        said: dict[str, str] = {}
        for case in of_run:
            for i, row in enumerate(case.rows):
                note = "" if said.get(row.contender, "") == row.note else row.note or "-"
                said[row.contender] = row.note
                first = (case.title, case.load) if i == 0 else ("", "")
                ratio = f"**{row.ratio}**" if row.loses else row.ratio
                cells = [first[0], row.contender, row.median, row.quartiles, row.rate, ratio]
                cells += [row.runs, first[1], note]
                lines.append("|" + "|".join(f" {_escaped(cell)} " for cell in cells) + "|")
    return "\n".join(lines) + "\n"


def read(path: Path) -> list[Recorded]:
    """The pages that `render` wrote.

    Raises:
      ValueError: A line is none of a page. The message names the file and the line.
    """
    cases: list[Recorded] = []
    run = Run("", "", ())
    said: dict[str, str] = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            if heading := re.fullmatch(r"## At (?:(.*), (\d{4}-\d\d-\d\d)|" + UNKNOWN + ")", line):
                run, said = Run(heading[1] or "", heading[2] or "", ()), {}
            elif line.startswith("On ") and not run.machine:
                pairs = [part.split(": ", 1) for part in line[3:-1].split("; ")]
                run = dataclasses.replace(run, machine=tuple((key, value) for key, value in pairs))
            elif line.startswith("| ") and not line.startswith(f"| {COLUMNS[0]} |"):
                cells = re.split(r"(?<!\\)\|", line)[1:-1]
                title, contender, *figures, load, note = (
                    cell.strip().replace("\\|", "|") for cell in cells
                )
                median, quartiles, rate, ratio, runs = figures
                note = said.get(contender, "") if note == "" else note.removeprefix("-") or ""
                said[contender] = note
                row = Row(contender, median, quartiles, rate, ratio.strip("*"), runs, note)
                if title:
                    cases.append(Recorded(title, run, load))
                cases[-1] = dataclasses.replace(cases[-1], rows=(*cases[-1].rows, row))
        except (IndexError, ValueError) as error:
            raise ValueError(
                f"{path}:{number}: expected a row of {len(COLUMNS)} cells, a run or its machine, got "
                f"{line[:80]!r} ({error})."
            ) from None
    return cases


def record(group: str, case: Recorded, titles: Sequence[str]) -> Path:
    """Puts a case into its group's page in the place of its old rows, and renews the overview.

    Args:
      group: The page.
      case: The measured case.
      titles: Those of the group's cases in order; what the page has of others goes.
    """
    path = RESULTS / f"{group}.md"
    found = {old.title: old for old in (read(path) if path.exists() else [])}
    found[case.title] = case
    RESULTS.mkdir(exist_ok=True)
    path.write_text(render(group, [found[title] for title in titles if title in found]))
    (RESULTS / OVERVIEW).write_text(overview())
    return path


def groups() -> dict[str, list[Recorded]]:
    """The recorded cases by group."""
    return {
        path.stem: read(path)
        for path in sorted(RESULTS.glob("*.md"))
        if path.read_text().startswith("# Benchmark: ")
    }


def overview() -> str:
    """The folder's first page: one row for each case that has other people's code in it, and the fastest of that."""
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench ARGS=--record` from the pages beside it. Bold: ours loses to other people's code.",
        "",
        "| group | case | ours, ms | the fastest of the others | its ms | time / ours |",
        "|---|---|--:|---|--:|--:|",
    ]
    for group, cases in groups().items():
        for case in cases:
            ours, *rest = (row for row in case.rows if row.median != FAILED)
            others = [row for row in rest if row.contender.startswith(OTHERS)]
            if others:
                best = min(others, key=lambda row: float(row.ratio))
                ratio = f"**{best.ratio}**" if best.loses else best.ratio
                cells = [f"[{group}]({group}.md)", case.title, ours.median, best.contender]
                cells += [best.median, ratio]
                lines.append(f"| {' | '.join(map(_escaped, cells))} |")
    return "\n".join(lines) + "\n"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
