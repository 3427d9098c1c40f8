#!/bin/bash
# A rectangle with two square holes in a row: expected was that the triangles have all edges of the three outlines, as
# the same library keeps corners on straight sides elsewhere. One side of each hole is part of a longer edge, so that
# a solid over it is open.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q mapbox_earcut==2.1.0 numpy==2.0.2 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import sys
from importlib.metadata import version
import mapbox_earcut, numpy as np

outlines = [[(0, 0), (6, 0), (6, 4), (0, 4)], [(1, 1), (1, 3), (2, 3), (2, 1)], [(4, 1), (4, 3), (5, 3), (5, 1)]]
points = np.array([corner for outline in outlines for corner in outline], float)
corners = mapbox_earcut.triangulate_float64(points, np.array([4, 8, 12], np.uint32)).reshape(-1, 3)
edges = {frozenset((int(t[k]), int(t[k - 1]))) for t in corners for k in range(3)}
wanted = [frozenset((first + k, first + (k + 1) % 4)) for first in (0, 4, 8) for k in range(4)]
missing = [[points[k].tolist() for k in edge] for edge in wanted if edge not in edges]
a, b, c = points[corners].transpose(1, 0, 2)
area = np.abs(np.linalg.det(np.stack([b - a, c - a], 1))).sum() / 2
print("mapbox_earcut", version("mapbox_earcut"))
print("expected: area 20 and all 12 edges of the outlines")
print("got: area", area, "without the edges", missing)
sys.exit(0 if len(missing) == 2 and abs(area - 20) < 1e-9 else 1)
EOF
