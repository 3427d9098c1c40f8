"""Errors that a user can make: raised with a sentence that names the file and the field, exit code 2."""

from __future__ import annotations

import reprlib
from typing import Any

_shorten = reprlib.Repr()
_shorten.maxstring = _shorten.maxother = _shorten.maxlong = 60


def short(value: Any) -> str:
    """`repr`, cut to the length that fits into a sentence.

    Example:
      >>> len(short("x" * 10**6)) < 70
      True
    """
    try:
        return _shorten.repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits
        return f"a value of type {type(value).__name__}"


def printable(text: str) -> str:
    r"""The text in one line that every terminal and file takes: names of files may hold any byte.

    Example:
      >>> printable("a" + chr(10) + "b" + chr(0xdcff)) == "a" + r"\n" + "b" + r"\udcff"
      True
    """
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


class ProgramError(Exception):
    """Bad input from the user: data, a checkpoint or an option.

    The message is one sentence that names the file and the field, the expected value, the actual one and the remedy;
    the command line prints it and exits with code 2.
    """

    exit_code = 2

    def __str__(self) -> str:
        return printable(super().__str__())


class CheckpointError(ProgramError):
    """A run folder or checkpoint that cannot be read or does not fit the request."""


class OutputError(ProgramError, OSError):
    """A file or folder that cannot be written."""
