#!/bin/bash
# pycolmap says NaN where a perspective camera or a folded fisheye has no place for a pixel, but for a pixel more than 90 degrees
# from a fisheye's axis cam_from_img returns the distorted point, and cam_ray_from_img a ray that is wrong by 51 degrees.
# Exit code 0: it is still so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3.11 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pycolmap==4.2.1 numpy==2.4.6 2>/dev/null
"$work/venv/bin/python" - <<'END'
import sys

import numpy as np
import pycolmap

print("pycolmap", pycolmap.__version__)
# An equidistant fisheye: a pixel 400 from the centre at f = 200 is 2 radians, 114.6 degrees, from the axis.
camera = pycolmap.Camera(
    model="OPENCV_FISHEYE", width=1000, height=750, params=[200, 200, 500, 375, 0, 0, 0, 0]
)
pixel = np.array([[900.0, 375.0]])
point, ray = camera.cam_from_img(pixel)[0], camera.cam_ray_from_img(pixel)[0]
angle = np.degrees(np.arctan2(np.hypot(*ray[:2]), ray[2]))
barrel = pycolmap.Camera(model="SIMPLE_RADIAL", width=1000, height=750, params=[500, 500, 375, -0.25])
print("a barrel lens beyond its fold:", barrel.cam_from_img(np.array([[5.0, 5.0]]))[0])
print("expected: cam_from_img [nan nan], as for the barrel lens, and a ray of nan or of 114.6 degrees")
print(f"got: cam_from_img {point}, and a ray of {angle:.1f} degrees")
sys.exit(not (np.allclose(point, [2, 0]) and abs(angle - 63.43) < 0.1))
END
