"""Scenes that several tests look at, rendered once."""

from __future__ import annotations

import functools

import pytest

from metal_ops.nerf import scenes
from metal_ops.nerf.scenes import Scene
from metal_ops.nerf.scenes.procedural import procedural_scene


@pytest.fixture(scope="session")
def still_life() -> Scene:
    """The built-in scene, small: 32 training and 3 held-out views of 48x48 pixels."""
    return procedural_scene(size=48, train_views=32, test_views=3, supersample=2)


@functools.cache
def few_views(size: int) -> Scene:
    return procedural_scene(size=size, train_views=12, test_views=3, supersample=1)


@pytest.fixture(scope="module")
def few_built_in_views():
    """The program's built-in scene with 12 training and 3 held-out views, rendered once in a process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scenes, "procedural_scene", few_views)
        yield
