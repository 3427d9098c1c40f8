"""Meshes in files: the readers by the ends of names, checks of all they give, and writing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from metal_ops.programs.files import atomic
from metal_ops.programs.reading import check_memory, open_file

from .mesh import Mesh, MeshError
from .ply import read_ply
from .polygons import read_obj, read_off
from .solids import MOST_BYTES, read_gltf, read_stl
from .triangles import cut

MOST_TRIANGLES = 1 << 23
_READERS = {
    ".obj": read_obj,
    ".ply": read_ply,
    ".off": read_off,
    ".stl": read_stl,
    ".glb": read_gltf,
    ".gltf": read_gltf,
}
SUFFIXES = tuple(_READERS)
WRITTEN = (".obj", ".ply")


def read(path: Path) -> Mesh:
    """The triangles of a file of one of the `SUFFIXES`; polygons are cut into triangles.

    Raises:
      MeshError: With the error, and its place.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise MeshError(
            f"{path}: expected a file called {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}."
        )
    with open_file(path, MeshError, "mesh") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise MeshError(f"{path}: is larger than {MOST_BYTES >> 20} MiB; give a coarser mesh.")
    # Python's objects for a number take some times its text.
    check_memory(12 * len(content), str(path), "give a coarser mesh", MeshError)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite ones are refused below
        found = reader(path, content)
    vertices, corners = found.vertices, found.corners
    if not np.isfinite(vertices).all() or (np.abs(vertices) > 1e150).any():
        raise MeshError(f"{path}: has a vertex that is not finite, or too far away; repair it.")
    if not len(found.sizes):
        raise MeshError(f"{path}: has no faces; give a mesh of triangles, not a cloud of points.")
    triangles = int((found.sizes - 2).sum())
    if triangles > MOST_TRIANGLES:
        raise MeshError(
            f"{path}: has {triangles} triangles, expected at most {MOST_TRIANGLES}; give a coarser mesh."
        )
    outside = (corners < 0) | (corners >= len(vertices))
    if outside.any():
        wrong = int(np.argmax(outside))
        face = int(np.searchsorted(np.cumsum(found.sizes), wrong, side="right"))
        raise MeshError(
            f"{path}: {found.word} {int(found.numbers[face])} names vertex {int(corners[wrong])}, and there are "
            f"{len(vertices)}; the file is damaged."
        )
    return Mesh(vertices, cut(path, found))


# ---- writing --------------------------------------------------------------------------------------------------------


def write(path: Path, mesh: Mesh) -> None:
    """Writes .obj, or binary .ply with float32 vertices.

    Raises:
      MeshError: It is called otherwise.
    """
    if path.suffix.lower() not in WRITTEN:
        raise MeshError(f"{path}: a mesh is written as .obj or .ply.")
    with atomic(path) as temporary, open(temporary, "wb") as file:
        if path.suffix.lower() == ".obj":
            for x, y, z in mesh.vertices.tolist():
                file.write(f"v {x:.8g} {y:.8g} {z:.8g}\n".encode())
            for a, b, c in (mesh.triangles + 1).tolist():
                file.write(f"f {a} {b} {c}\n".encode())
            return
        lines = (
            "ply",
            "format binary_little_endian 1.0",
            f"element vertex {len(mesh.vertices)}",
            *(f"property float {axis}" for axis in "xyz"),
            f"element face {len(mesh.triangles)}",
            "property list uchar int vertex_indices",
            "end_header",
        )
        file.write(("\n".join(lines) + "\n").encode())
        file.write(mesh.vertices.astype("<f4").tobytes())
        faces = np.empty(len(mesh.triangles), [("n", "u1"), ("v", "<i4", (3,))])
        faces["n"], faces["v"] = 3, mesh.triangles
        file.write(faces.tobytes())
