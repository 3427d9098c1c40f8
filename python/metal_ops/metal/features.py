"""The language's features that this compiler does not have, as compute does not need them or not yet: one sentence
per feature, where clang has many."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .messages import Message, Place

if TYPE_CHECKING:
    from .syntax_tree import SyntaxTree

_RENDERING = "belong to rendering, which this compute compiler does not have"
_NOT = "not supported by this compute compiler"
_FRAGMENTS = f"derivatives and other fragment functions {_RENDERING}"
_TILES = "image blocks belong to tile shading, which this compute compiler does not have"
_PIXELS = "pixel data types (rgba8unorm) are those of image blocks, which this compute compiler does not have"
_MESHES = f"mesh shaders {_RENDERING}"
_RAYS = f"ray tracing is {_NOT}"
_COMMANDS = f"indirect command buffers that a shader encodes are {_NOT}"
_GLOBALS = f"built-ins and bindings at program scope are {_NOT}; make it an argument of the kernel"
_TENSORS = "tensors need Metal 4.0 (-std=metal4.0)"

# Headers that are not there.
HEADERS = {
    "metal_raytracing": _RAYS,
    "metal_mesh": _MESHES,
    "metal_command_buffer": _COMMANDS,
}

# Names of the library that are not there. A user's own ones of the same spelling never come here: clang knows those.
NAMES = {
    **dict.fromkeys(
        """imageblock imageblock_layout_implicit imageblock_layout_explicit imageblock_slice
        threadgroup_imageblock""".split(), _TILES
    ),
    **dict.fromkeys(
        """r8unorm r8snorm r16unorm r16snorm rg8unorm rg8snorm rg16unorm rg16snorm rgba8unorm srgba8unorm rgba8snorm
        rgba16unorm rgba16snorm rgb10a2 rg11b10f rgb9e5""".split(), _PIXELS
    ),
    **dict.fromkeys(
        """texture2d_ms texture2d_ms_array depth2d_ms depth2d_ms_array""".split(),
        "devices here make no multisample textures, which a kernel could read; pass a texture2d_array with a slice for each sample",
    ),
    **dict.fromkeys("mesh mesh_grid_properties object_data topology".split(), _MESHES),
    **dict.fromkeys(
        """raytracing ray_data acceleration_structure primitive_acceleration_structure instance_acceleration_structure
        intersector intersection_query intersection_function_table intersection_params""".split(), _RAYS
    ),
    **dict.fromkeys(
        """command_buffer compute_command render_command compute_pipeline_state render_pipeline_state""".split(), _COMMANDS
    ),
    **dict.fromkeys(
        """rasterization_rate_map_data rasterization_rate_map_decoder""".split(), f"rasterization rates {_RENDERING}"
    ),
    **dict.fromkeys(
        """dfdx dfdy fwidth discard_fragment interpolant interpolation get_num_samples get_sample_position
        calculate_clamped_lod calculate_unclamped_lod""".split(), _FRAGMENTS
    ),
    **dict.fromkeys("tensor tensor_ops mpp extents dextents tensor_inline tensor_handle cooperative_tensor".split(), _TENSORS),
    "convolution2d": f"convolutions of tensors are {_NOT}; write the sum over windows as products (matmul2d)",
    "packed_numeric_type": f"packed formats of numbers are {_NOT}; unpack them yourself",
    **dict.fromkeys(
        "execution_dsimdgroups execution_dthreads".split(),
        f"scopes of a size that is known at run time are {_NOT}; use execution_simdgroups<N>",
    ),
    "reduction": f"samplers of Metal 4 are {_NOT}",
    **dict.fromkeys("atomic_min atomic_max".split(), f"64-bit atomics on textures are {_NOT}"),
}  # fmt: skip

# Types of a later version than a source may be for. The library's headers have them in any: the source, which comes behind
# those, has other names for them then (compiler.py), which nothing declares.
BFLOAT_SINCE = (3, 1)
BFLOATS = """bfloat bfloat2 bfloat3 bfloat4 packed_bfloat2 packed_bfloat3 packed_bfloat4
    simdgroup_bfloat8x8""".split()
LACKS = "_msl_lacks_"

# Attributes of functions and arguments, which declarations.py leaves as an annotation.
ATTRIBUTES = {
    "object": _MESHES,
    "mesh": _MESHES,
    "intersection": _RAYS,
    "patch": f"tessellation {_RENDERING}".replace("belong", "belongs"),
    "stage_in": f"vertex and stage-in descriptors are {_NOT}",
}
FUNCTIONS = {
    "vertex": f"vertex functions {_RENDERING}",
    "fragment": f"fragment functions {_RENDERING}",
}


def refused(tree: SyntaxTree) -> list[Message]:
    """An error for each missing feature that the source uses; clang's other messages about it are of no use then."""
    found: dict[str, Message] = {}

    def say(place: Place | None, name: str, sentence: str) -> None:
        found.setdefault(sentence, Message(place, "error", f"'{name}': {sentence}"))

    for cursor in tree.declarations(tree.unit.cursor):
        for name in tree.annotations(cursor):
            if name in FUNCTIONS:
                say(tree.place(cursor.location), name, FUNCTIONS[name])
            elif name.startswith("refused_"):
                attribute = name.removeprefix("refused_")
                say(tree.place(cursor.location), f"[[{attribute}]]", ATTRIBUTES[attribute])
            elif (
                name in ("at", "buffer", "texture", "sampler") and cursor.kind == tree.kind.VAR_DECL
            ):
                say(tree.place(cursor.location), cursor.spelling, _GLOBALS)
        for child in cursor.get_children():
            if child.kind == tree.kind.PARM_DECL and "stage_in" in tree.annotations(child):
                say(tree.place(child.location), "[[stage_in]]", ATTRIBUTES["stage_in"])
    for diagnostic in tree.unit.diagnostics:
        if diagnostic.severity >= diagnostic.Error:
            name = tree.missing_name(diagnostic)
            if name.startswith(LACKS):
                name = name.removeprefix(LACKS)
                sentence = f"'{name}' needs Metal 3.1 (-std=metal3.1)"
                place = tree.place(diagnostic.location)
                found.setdefault(name, Message(place, "error", sentence))
            elif name in NAMES:
                # In `mesh<V, topology::line>` clang names the inner name.
                before = tree.source.text[: diagnostic.location.offset]
                words = re.findall(r"\w+", re.split(r"[;{}\n]", before)[-1])
                outer = [word for word in words if NAMES.get(word) == NAMES[name]]
                say(tree.place(diagnostic.location), [*outer, name][0], NAMES[name])
    return list(found.values())
