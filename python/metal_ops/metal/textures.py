"""The types of textures and samplers in MSL's words."""

from __future__ import annotations

import re

from .messages import in_metal

_TEXTURE = re.compile(r"(?:const )?metal::((?:texture|depth)\w+|sampler)(?:<(.*)>)?")


def texture_type(canonical: str) -> str | None:
    """E.g. "texture2d<float, access::read>" or "sampler", from clang's name of the type; None for other types."""
    found = _TEXTURE.fullmatch(canonical)
    if not found:
        return None
    class_, inside = found.groups()
    if inside is None:
        return class_
    component, _, access = inside.partition(", ")
    access = access or "access::sample"  # the default, which clang leaves out
    return f"{class_}<{in_metal(component)}, {in_metal(access)}>"
