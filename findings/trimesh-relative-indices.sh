#!/bin/bash
# An OBJ file of two solids, each with its vertices and then faces of negative indices: expected was that -1 is the
# last vertex so far, as the format says. trimesh counts from the end of the file, so that the second solid is there
# twice.
set -e
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q trimesh==5.2.0 numpy==2.0.2 2>/dev/null || { echo "pip failed"; exit 2; }
cd "$folder"
"$folder/venv/bin/python" - <<'EOF'
import io, sys
import trimesh

faces = "f -4 -2 -3\nf -4 -3 -1\nf -3 -2 -1\nf -2 -4 -1\n"
text = "".join(f"v {x} 0 0\nv {x + 1} 0 0\nv {x} 1 0\nv {x} 0 1\n" + faces for x in (0, 5))
got = trimesh.load_mesh(io.BytesIO(text.encode()), file_type="obj").bounds[:, 0].tolist()
print("trimesh", trimesh.__version__)
print("expected: x from 0 to 6")
print("got: x from", got[0], "to", got[1])
sys.exit(0 if got == [5, 6] else 1)
EOF
