"""Scenes: one file for each format, all of them giving a `Scene`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from metal_ops.programs.reading import kind_of
from metal_ops.programs.records import data_from, number_from

from ..errors import SceneError
from .blender import load_blender
from .colmap import find_model, how_to_make, load_colmap
from .common import Scene, Views
from .instant_ngp import load_instant_ngp
from .procedural import procedural_scene
from .tiny import load_tiny

__all__ = ["Scene", "Views", "load_scene", "origin_from"]


def load_scene(data: str | Path | None, downscale: int = 1, size: int | None = None) -> Scene:
    """The scene that a user names.

    Args:
      data: A NeRF-synthetic folder (transforms_train.json), an instant-ngp folder or file
        (transforms.json), a folder of photos with a COLMAP model (sparse/0), an .npz with images, poses and focal; None
        for the built-in scene.
      downscale: Whole factor to shrink photographs by.
      size: Pixels along an edge of the built-in scene's pictures.

    Raises:
      SceneError: With the file and the field that is wrong.
    """
    if data is None:
        return procedural_scene(**({} if size is None else {"size": size}))
    path = Path(data)
    kind = kind_of(path, SceneError)
    if not kind:
        raise SceneError(f"{path}: no such file or folder.")
    if kind == "folder":
        if kind_of(path / "transforms_train.json", SceneError):
            return load_blender(path, downscale)
        if kind_of(path / "transforms.json", SceneError):
            return load_instant_ngp(path, downscale)
        model = find_model(path)
        if model is not None:
            return load_colmap(path, model, downscale)
        raise SceneError(
            f"{path}: neither transforms_train.json (NeRF-synthetic) nor transforms.json (instant-ngp, nerfstudio) nor "
            f"a COLMAP model (sparse/0) is there{how_to_make(path)}."
        )
    if path.suffix == ".npz":
        return load_tiny(path, downscale)
    if path.suffix == ".json":
        return load_instant_ngp(path, downscale)
    raise SceneError(f"{path}: expected a folder, an .npz or a transforms.json.")


def origin_from(header: dict[str, Any], where: str) -> dict[str, Any]:
    """The arguments of `load_scene` that load the scene of a checkpoint again: `data`, `downscale` and `size`.

    Raises:
      CheckpointError: If a value is no path or number of pixels.
    """
    size = header.get("size")
    if size is not None:
        number_from(header, "size", where, 16, 1024)
    return {
        "data": data_from(header, where),
        "downscale": number_from(header, "downscale", where, 1, 64),
        "size": size,
    }
