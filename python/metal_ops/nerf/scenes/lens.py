"""The camera of a frame in transforms.json, as nerfstudio, instant-ngp and Blender's exporters write it.

A field that bends rays is used or refused by name: a lens that is ignored bends every ray wrongly.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple

import numpy as np

from metal_ops.programs.errors import short
from metal_ops.programs.reading import is_number

from ..cameras import Cameras
from ..errors import SceneError
from ..lenses import TERMS, Model, panorama
from .common import angle, number

_MOST_BEND = 1e3
_MOST_PIXELS = 1e6
_LEAST_FOCAL = 1e-3
_LEAST_DEGREES = 0.01

# `camera_model` as nerfstudio and COLMAP name lenses, "" where a file says nothing.
_MODELS = {
    "": Model.PERSPECTIVE,
    "PERSPECTIVE": Model.PERSPECTIVE,
    "SIMPLE_PINHOLE": Model.PERSPECTIVE,
    "PINHOLE": Model.PERSPECTIVE,
    "SIMPLE_RADIAL": Model.PERSPECTIVE,
    "RADIAL": Model.PERSPECTIVE,
    "OPENCV": Model.PERSPECTIVE,
    "FULL_OPENCV": Model.PERSPECTIVE,
    "FISHEYE": Model.FISHEYE,
    "SIMPLE_FISHEYE": Model.FISHEYE,
    "OPENCV_FISHEYE": Model.FISHEYE,
    "SIMPLE_RADIAL_FISHEYE": Model.FISHEYE,
    "RADIAL_FISHEYE": Model.FISHEYE,
    "EQUIRECTANGULAR": Model.EQUIRECTANGULAR,
}
# instant-ngp's own words for a camera's model.
_FLAGS = {
    "is_fisheye": Model.FISHEYE,
    "latlong": Model.EQUIRECTANGULAR,
    "equirectangular": Model.EQUAL_AREA,
}
_TERMS = {
    Model.PERSPECTIVE: ("k1", "k2", "p1", "p2", "k3", "k4"),
    Model.FISHEYE: ("k1", "k2", "k3", "k4"),
    Model.EQUIRECTANGULAR: (),
    Model.EQUAL_AREA: (),
}
_FOCAL = ("x_fov", "y_fov", "fl_x", "fl_y", "camera_angle_x", "camera_angle_y")
KNOWN = {*_FOCAL, *_FLAGS, "cx", "cy", "w", "h", "camera_model", "k1", "k2", "k3", "k4", "p1", "p2"}
# Names of lens terms in other programs' files; those that are known come first.
_BENDS = re.compile(
    r"k\d+|p\d+|sx?\d+|sy\d+|b[12]|tau_?[xy\d]?|skew|omega|xi|.*fisheye.*|.*panorama.*|.*latlong.*|.*equirect.*|"
    r".*spherical.*|.*distort.*|.*lens.*|.*ftheta.*|.*ortho(?!gonal).*|.*projection.*|camera_type|rolling_shutter.*|shift_[xy]",
    re.IGNORECASE,
)
_TERM = re.compile(r"[kp]\d")


class Lens(NamedTuple):
    """A frame's camera without its place.

    Attributes:
      model: How it maps directions.
      intrinsics: (fl_x, fl_y, cx, cy), pixels.
      distortion: The terms of the model.
    """

    model: Model
    intrinsics: list[float]
    distortion: list[float]


def lens_fields(content: dict[str, Any]) -> dict[str, Any]:
    """The fields of a file or a frame that describe a camera."""
    return {key: value for key, value in content.items() if key in KNOWN or bends(key)}


def bends(key: str) -> bool:
    """Whether a field has the name of a lens term in some program's files."""
    return len(key) < 64 and _BENDS.fullmatch(key) is not None


def lens_of(
    frame: dict[str, Any], shared: dict[str, Any], width: int, height: int, where: str
) -> Lens:
    """The camera of a frame: the frame's own fields, else those that the file shares.

    Args:
      frame: The frame.
      shared: The `lens_fields` of the file.
      width: Pixels in a row of the image as it is trained on; the file's numbers are for its own w and h.
      height: Pixels in a column.
      where: File and frame, for errors.

    Raises:
      SceneError: With the field that is wrong or not supported.
    """
    own = lens_fields(frame)
    if "camera_model" in shared:
        _check_shared(own, shared, where)
    focal = any(
        key in own for key in _FOCAL
    )  # a frame's focal length stands for both axes, as in instant-ngp
    settings = {k: v for k, v in shared.items() if not (focal and k in _FOCAL)} | own
    model = _model(settings, where)
    names = _TERMS[model]
    if str(settings.get("camera_model")).upper() == "FULL_OPENCV":
        names = names[:5]  # its k4 is another one: of the denominator
    for key in sorted(settings):
        if key in names or (key in KNOWN and not _TERM.fullmatch(key)):
            continue
        if not _is_zero(settings[key]):
            reads = ", ".join(names) or "no lens terms"
            raise SceneError(
                f"{where}: field '{key}' = {short(settings[key])} is not supported for {_words(model)}, of which "
                f"{reads} are read; undistort the images to a pinhole first."
            )
    terms = [number(settings, key, where, 0.0, -_MOST_BEND, _MOST_BEND) for key in names]
    intrinsics = _intrinsics(settings, model, width, height, where)
    return Lens(model, intrinsics, [*terms, *[0.0] * (TERMS - len(terms))])


def _check_shared(own: dict[str, Any], shared: dict[str, Any], where: str) -> None:
    """Refuses a frame of nerfstudio's that says otherwise than the file: nerfstudio takes the file's, instant-ngp not.

    nerfstudio takes all lens terms from the file if one is there.
    """
    bent = any(_TERM.fullmatch(key) for key in shared)
    for key, value in own.items():
        of_file = shared.get(key, 0 if bent and _TERM.fullmatch(key) else value)
        if value != of_file:
            raise SceneError(
                f"{where}: field '{key}' is {short(value)}, and {short(of_file)} for all frames of the file, of which "
                "nerfstudio takes the latter and instant-ngp the former; keep one."
            )


def cameras_of(poses: list[np.ndarray], lenses: list[Lens], width: int, height: int) -> Cameras:
    """Cameras of poses [3, 4] and their lenses."""
    return Cameras(
        np.stack(poses).astype(np.float32),
        np.array([lens.intrinsics for lens in lenses], np.float32),
        np.array([lens.distortion for lens in lenses], np.float32),
        width,
        height,
        np.array([lens.model for lens in lenses], np.int32),
    )


def _words(model: Model) -> str:
    return {
        Model.PERSPECTIVE: "a perspective camera",
        Model.FISHEYE: "a fisheye",
        Model.EQUIRECTANGULAR: "a panorama",
        Model.EQUAL_AREA: "a panorama",
    }[model]


def _model(settings: dict[str, Any], where: str) -> Model:
    name = settings.get("camera_model", "")
    if not isinstance(name, str) or name.upper() not in _MODELS:
        known = ", ".join(name for name in _MODELS if name)
        raise SceneError(
            f"{where}: field 'camera_model' = {short(name)} is not supported (one of {known}); convert the images to "
            "one of these."
        )
    flags = []
    for key in _FLAGS:
        value = settings.get(key, False)
        if not isinstance(value, bool) and not (is_number(value) and value in (0, 1)):
            raise SceneError(
                f"{where}: field '{key}' = {short(value)} is not supported; it must be true or false."
            )
        if value:
            flags.append(key)
    said = {_FLAGS[key] for key in flags} | ({_MODELS[name.upper()]} if name else set())
    if len(said) > 1:
        fields = [f"'{key}'" for key in flags] + (
            [f"'camera_model' = {short(name)}"] if name else []
        )
        raise SceneError(f"{where}: fields {' and '.join(fields)} contradict each other; keep one.")
    return said.pop() if said else Model.PERSPECTIVE


def _is_zero(value: Any) -> bool:
    """Whether a lens term says that there is none: 0, false, null, empty text, or a list of such."""
    if isinstance(value, list):
        return len(value) <= 16 and all(not isinstance(x, list) and _is_zero(x) for x in value)
    return value is None or value == "" or (isinstance(value, int | float) and value == 0)


def _intrinsics(
    settings: dict[str, Any], model: Model, width: int, height: int, where: str
) -> list[float]:
    """(fl_x, fl_y, cx, cy) for an image of that size; the file's numbers are for its own w and h."""
    stated_width = number(settings, "w", where, float(width), 1.0, _MOST_PIXELS)
    stated_height = number(settings, "h", where, float(height), 1.0, _MOST_PIXELS)
    scale = width / stated_width
    if abs(stated_height * scale - height) > 1.0:
        raise SceneError(
            f"{where}: fields 'w' and 'h' say {stated_width:g}x{stated_height:g}, but the image has the shape of "
            f"{width}x{height}."
        )
    if model == Model.EQUAL_AREA or "latlong" in settings and settings["latlong"]:
        # instant-ngp takes its panoramas as whole ones and looks at no focal length.
        return panorama(model, width, height)
    if model == Model.EQUIRECTANGULAR:
        whole = {"fl_x": stated_width / 2, "fl_y": stated_height}
        whole |= {"cx": stated_width / 2, "cy": stated_height / 2}
        for key, wanted in whole.items():
            got = number(settings, key, where, wanted)
            if abs(got - wanted) > 0.51:  # nerfstudio halves and rounds
                raise SceneError(
                    f"{where}: field '{key}' = {got:g} of an EQUIRECTANGULAR image of "
                    f"{stated_width:g}x{stated_height:g} pixels, expected {wanted:g} ({_WHOLE[key]}); only "
                    "whole panoramas are supported."
                )
        return panorama(model, width, height)
    focal = {
        axis: _focal(settings, axis, size, where)
        for axis, size in (("x", stated_width), ("y", stated_height))
    }
    fl_x, fl_y = focal["x"] or focal["y"], focal["y"] or focal["x"]
    if fl_x is None or fl_y is None:
        raise SceneError(f"{where}: field 'fl_x' or 'camera_angle_x' is missing.")
    cx = number(settings, "cx", where, stated_width / 2)
    cy = number(settings, "cy", where, stated_height / 2)
    return [fl_x * scale, fl_y * scale, cx * scale, cy * scale]


_WHOLE = {"fl_x": "w / 2", "fl_y": "h", "cx": "w / 2", "cy": "h / 2"}


def _focal(settings: dict[str, Any], axis: str, size: float, where: str) -> float | None:
    """The focal length along an axis in pixels, by instant-ngp's order of fields; None if there is none."""
    if f"{axis}_fov" in settings:  # in degrees
        degrees = number(settings, f"{axis}_fov", where, None, _LEAST_DEGREES, 180 - _LEAST_DEGREES)
        return 0.5 * size / math.tan(math.radians(degrees) / 2)
    if f"fl_{axis}" in settings:
        return number(settings, f"fl_{axis}", where, least=_LEAST_FOCAL)
    if f"camera_angle_{axis}" in settings:
        return 0.5 * size / math.tan(0.5 * angle(settings, f"camera_angle_{axis}", where))
    return None
