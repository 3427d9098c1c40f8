"""Ctrl-C in the middle of a training, in this process."""

from __future__ import annotations

import signal

import pytest


def interrupt(trainer: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGINT before the third step of a class's `train_step`, which is taken all the same."""
    step = trainer.train_step

    def interrupted(self):
        if self.step == 2:
            signal.raise_signal(signal.SIGINT)
        return step(self)

    monkeypatch.setattr(trainer, "train_step", interrupted)
