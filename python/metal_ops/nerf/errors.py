"""Errors of a scene."""

from __future__ import annotations

from metal_ops.programs.errors import ProgramError


class SceneError(ProgramError):
    """A scene that cannot be read or makes no sense."""
