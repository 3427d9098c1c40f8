"""Masks of photographs: nerfstudio's `mask_path`, and the files that instant-ngp finds beside an image by its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from metal_ops.programs import reading
from metal_ops.programs.errors import short

from ..errors import SceneError
from .common import image_file, shrink_mask


def masks_of(
    frames: list[dict[str, Any]],
    files: list[Path],
    path: Path,
    downscale: int,
    height: int,
    width: int,
) -> np.ndarray | None:
    """bool [N, H, W], false where a pixel does not count; None without masks.

    Args:
      frames: The frames of the file.
      files: Their images.
      path: The file.
      downscale: Factor that the images are shrunk by.
      height: Pixels in a column of a shrunk image.
      width: Pixels in a row.

    Raises:
      SceneError: Only some frames have a mask_path, or a mask is missing, of another size or no mask.
    """
    moving = beside(files)
    without = sum("mask_path" not in frame for frame in frames)
    if without == len(frames) and not any(moving):
        return None
    if without not in (0, len(frames)):
        raise SceneError(
            f"{path}: field 'mask_path' is missing in {without} of {len(frames)} frames; give all of them one, or none."
        )
    both = next((file for file in moving if file is not None), None)
    if not without and both is not None:
        raise SceneError(
            f"{both}: instant-ngp reads this mask, and nerfstudio the field 'mask_path' of {path}; keep one of them."
        )
    masks = np.ones([len(frames), height, width], bool)
    for place, (frame, other) in enumerate(zip(frames, moving, strict=True)):
        if without:
            if other is not None:  # things there move
                masks[place] = shrink_mask(~_drawn(other, height, width, downscale), downscale)
            continue
        name = frame["mask_path"]
        if not isinstance(name, str) or not name:
            raise SceneError(f"{path}: field 'mask_path' must be a string, got {short(name)}.")
        file = image_file(path.parent, name)
        masks[place] = shrink_mask(_drawn(file, height, width, downscale), downscale)
    return masks


def beside(files: list[Path]) -> list[Path | None]:
    """instant-ngp's mask of moving things, for each image; None where there is none.

    Raises:
      SceneError: Another file beside an image is there, which instant-ngp reads: its alpha or its rays.
    """
    for file in files:
        for name, remedy in (
            (f"{file.name}.alpha{file.suffix}", "save it as the alpha of the image"),
            (f"{file.stem}.alpha{file.suffix}", "save it as the alpha of the image"),
            (f"rays_{file.stem}.dat", "give the camera's lens in transforms.json, and move this file away"),
        ):  # fmt: skip
            other = file.with_name(name)
            if os.path.exists(other):  # False also for a name that is too long to be one
                raise SceneError(
                    f"{other}: instant-ngp reads this file beside {file.name}, which is not supported; {remedy}."
                )
    masks = [file.with_name(f"dynamic_mask_{file.stem}.png") for file in files]
    return [mask if os.path.exists(mask) else None for mask in masks]


def _drawn(file: Path, height: int, width: int, downscale: int) -> np.ndarray:
    """Where a mask is not black, bool, of the image's own size."""
    pixels, _ = reading.image_pixels(file, SceneError)
    if pixels.shape[:2] != (height * downscale, width * downscale):
        raise SceneError(
            f"{file}: mask of {pixels.shape[1]}x{pixels.shape[0]} pixels for an image of "
            f"{width * downscale}x{height * downscale}."
        )
    if (pixels[..., :1] != pixels[..., 1:3]).any() or int(pixels[..., 3].min()) < 255:
        raise SceneError(
            f"{file}: a mask must be grey and without alpha, and this one has colours or transparent pixels; save it "
            "as black and white."
        )
    return pixels[..., 0] > 0
