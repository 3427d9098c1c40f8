"""The fuzzers by name; a reader's module is imported when it is asked for."""

from __future__ import annotations

import importlib
from typing import Any

_CLASSES = {
    "scene": ("scene", "SceneReader", ()),
    "checkpoint": ("checkpoints", "CheckpointReader", ()),
    "model-gguf": ("models", "ModelReader", ("gguf",)),
    "model-folder": ("models", "ModelReader", ("folder",)),
    "package": ("packages", "PackageReader", ()),
    "mesh": ("meshes", "MeshReader", ()),
    "metallib": ("metallibs", "MetallibReader", ()),
    "cache": ("caches", "CacheReader", ()),
    "arguments": ("arguments", "ArgumentReader", ("cpu",)),
    "arguments-device": ("arguments", "ArgumentReader", ("device",)),
}
NAMES = tuple(_CLASSES)


def make(name: str) -> Any:
    """An `engine.Reader`, or one that has a loop of its own, `run`."""
    module, kind, arguments = _CLASSES[name]
    return getattr(importlib.import_module(f".{module}", __package__), kind)(*arguments)
