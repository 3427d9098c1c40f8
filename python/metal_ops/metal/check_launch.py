"""Launches whose kernels look for races and the like, for launch.py: kernels compiled with Options(checks=True)."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from .abi import abi, number

CHECKS = ("race", "init", "barrier", "bounds", "alias")
SCHEDULES = ("plain", "reverse", "one-simdgroup", "random")
SHADOW_BYTES = 1 << 28
_Checks: Any = abi().struct("metallib_checks")


class Checks:
    """The checks of a launch, and their findings.

    Args:
      words: of CHECKS.
      schedule: of SCHEDULES, the order of threads.
      seed: of "random".
      overlaps: the launch may overlap the one before it that had this object.

    Attributes:
      reports: sentences of the last launch.
      more: how many reports there were beyond these.
    """

    def __init__(
        self,
        words: tuple[str, ...] = CHECKS,
        schedule: str = "plain",
        seed: int = 0,
        overlaps: bool = False,
    ):
        self._shadow = mmap.mmap(-1, SHADOW_BYTES)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._shadow))
        self._words, self._schedule, self._seed = words, SCHEDULES.index(schedule), seed
        self.overlaps = overlaps
        self.reports: list[str] = []
        self.more = 0

    def begin(self, launch: Any, kernel: Any) -> Any:
        """Gives a metallib_launch its checks, which are to be kept until end()."""
        made = _Checks(
            checks=sum(number(f"CHECK_{word.upper()}") for word in self._words),
            schedule=self._schedule,
            seed=self._seed,
            overlaps=self.overlaps,
            kernel=ctypes.cast(ctypes.pointer(kernel), ctypes.c_void_p),
            shadow=self._address,
            shadow_bytes=SHADOW_BYTES,
        )
        launch.checks = ctypes.pointer(made)
        return made

    def end(self, made: Any) -> None:
        """Reads what was found."""
        self.reports = [made.report[i].value.decode() for i in range(made.n_reports)]
        self.more = made.n_more
