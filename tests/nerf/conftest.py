"""Scenes that several tests look at, rendered once."""

from __future__ import annotations

import pytest

from metal_ops.nerf.scenes import Scene
from metal_ops.nerf.scenes.procedural import procedural_scene


@pytest.fixture(scope="session")
def still_life() -> Scene:
    """The built-in scene, small: 32 training and 3 held-out views of 48x48 pixels."""
    return procedural_scene(size=48, train_views=32, test_views=3, supersample=2)
