"""What goes wrong with packages."""

from __future__ import annotations


class PackageError(ValueError):
    """A function cannot be packed, or a file is no package that fits here. The message names the remedy."""
