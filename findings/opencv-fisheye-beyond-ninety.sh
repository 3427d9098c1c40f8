#!/bin/bash
# cv2.fisheye.undistortPoints clamps the angle to 90 degrees: all pixels farther out, which an ultra-wide fisheye has, get places
# near 2e16, as if they were in front and valid; its marker for points without a place, -1e6, is not used.
# Exit code 0: it is still so.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3.11 -m venv "$work/venv"
"$work/venv/bin/pip" install -q opencv-python-headless==5.0.0.93 numpy==2.4.6 2>/dev/null
"$work/venv/bin/python" - <<'END'
import sys

import cv2
import numpy as np

print("OpenCV", cv2.__version__)
matrix = np.array([[200.0, 0, 500], [0, 200, 375], [0, 0, 1]])


def place(angle, k1=0.0):
    """Undistorted x of the pixel that an equidistant fisheye has at this angle from the axis."""
    pixel = np.array([[[500 + 200 * angle, 375.0]]])
    return float(cv2.fisheye.undistortPoints(pixel, matrix, np.array([k1, 0, 0, 0]))[0, 0, 0])


print(f"at 1.5 radians: {place(1.5):.3f}, the tangent of the angle; beyond a fold (k1 = -0.1): {place(1.3, -0.1):.6g}")
print("expected: at 1.7 and 2.0 radians the marker -1e+06, or tangents of the angles, -7.697 and -2.185")
print(f"got: {place(1.7):.6g} and {place(2.0):.6g}")
sys.exit(not (place(1.7) > 1e15 and place(2.0) > 1e15))
END
