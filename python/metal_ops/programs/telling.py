"""Lines about work that takes long: one before it begins, its progress, and the time that a budget takes in all."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

_FIRST_LINE, _BETWEEN = 2.0, 5.0  # seconds; of lines in files


def loading(console: Console) -> None:
    """A line before TensorFlow is imported, which takes seconds; none where it has been."""
    if sys.modules.get("tensorflow") is None:
        console.print("Loading TensorFlow.")


@contextmanager
def phase(console: Console, words: str) -> Iterator[None]:
    """Work without steps that could be counted: a turning wheel in a terminal, a line in a file.

    Args:
      console: Where it is told.
      words: The work, such as "computing distances".
    """
    if console.is_terminal:
        with console.status(words):
            yield
    else:
        console.print(f"{words[0].upper()}{words[1:]}.", highlight=False, soft_wrap=True)
        yield


@contextmanager
def told(console: Console, words: str, total: int, unit: str) -> Iterator[Callable[[], None]]:
    """Work in steps; gives a function that is called after each of them.

    A bar in a terminal, which goes when the work ends; lines in a file, the first one after two seconds.

    Args:
      console: Where it is told.
      words: The work, such as "turntable".
      total: How many steps there are.
      unit: Name of the steps, such as "frames".

    Example:
      >>> from rich.console import Console
      >>> with told(Console(), "turntable", 2, "frames") as step:
      ...     step(), step()
      (None, None)
    """
    if console.is_terminal:
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f} " + unit),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(words, total=total)
            yield lambda: progress.advance(task)
        return
    done, due = 0, time.monotonic() + _FIRST_LINE

    def step() -> None:
        nonlocal done, due
        done += 1
        if time.monotonic() >= due and done < total:
            console.print(f"{words}: {done} of {total} {unit}", highlight=False, soft_wrap=True)
            due = time.monotonic() + _BETWEEN

    yield step


class Whole:
    """The time of a run in all, of which its budget counts the training alone.

    Args:
      console: Where it is told.
      seconds: Training seconds that are behind the run.
    """

    def __init__(self, console: Console, seconds: float) -> None:
        self._console, self._before = console, seconds
        self._begun, self._told = time.monotonic(), False

    def begin(self, budget: float | None) -> None:
        """A line before the first step, whose tracing takes seconds."""
        if budget is None:
            self._console.print("Training.")
            return
        self._console.print(
            f"Training for {budget - self._before:.0f} s; measuring and pictures come on top.",
            highlight=False,
        )

    def expect(self, progress: float, seconds: float, looks: float) -> None:
        """Tells once how long the run will take.

        Args:
          progress: The used part of the budget, 0 to 1.
          seconds: Training seconds of the run by now.
          looks: Seconds that measurements and pictures will still take.
        """
        if self._told or not progress:
            return
        self._told = True
        whole = self.seconds() + seconds * (1 / progress - 1) + looks
        self._console.print(f"About {whole:.0f} s in all.", highlight=False)

    def words(self, seconds: float) -> str:
        """At the end, with the training seconds of the run."""
        return f"{seconds:.1f} s of training, {self.seconds():.0f} s in all"

    def seconds(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begun


def looks_left(seconds: float, total: float, growth: float) -> int:
    """How many times that grow geometrically lie before the end.

    Example:
      >>> looks_left(2.0, 60.0, 1.5)  # 3, 4.5, 6.75, 10.1, 15.2, 22.8, 34.2, 51.3
      8
    """
    count = 0
    while (seconds := max(seconds, 1e-3) * growth) < total:
        count += 1
    return count
