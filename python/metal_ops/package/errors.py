"""Errors of packages."""

from __future__ import annotations

from metal_ops.programs.errors import printable


class PackageError(ValueError):
    """A function cannot be packed, or a file is no package that fits here. The message names the remedy."""

    def __str__(self) -> str:
        return printable(super().__str__())
