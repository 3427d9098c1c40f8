"""The first Ctrl-C of a program that has something to finish."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether the user wants to stop; ask it by calling it."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked


@contextmanager
def stop_on_interrupt() -> Iterator[Stop]:
    """Turns the first Ctrl-C (or SIGTERM) into a polite request; the second one interrupts at once.

    An exception in the middle of a step would leave the optimizer half a step ahead of the counters.
    """
    stop = Stop()

    def ask(number: int, _: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
