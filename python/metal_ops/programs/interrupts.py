"""The first Ctrl-C of a program that has something to finish."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


def ends() -> list[signal.Signals]:
    """Signals that end a program: of Ctrl-C, of batch systems and containers, and of a terminal that is closed.

    The last one unless `nohup` has it ignored.
    """
    closed = [signal.SIGHUP] * (signal.getsignal(signal.SIGHUP) != signal.SIG_IGN)
    return [signal.SIGINT, signal.SIGTERM, *closed]


class Stop:
    """Whether the user wants to stop; ask it by calling it."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked


@contextmanager
def stop_on_interrupt() -> Iterator[Stop]:
    """Turns the first Ctrl-C, SIGTERM or SIGHUP into a polite request; the second one interrupts at once.

    An exception in the middle of a step would leave the optimizer half a step ahead of the counters.
    """
    stop = Stop()

    def ask(number: int, _: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, ask) for number in ends()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
