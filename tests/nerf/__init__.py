"""Tests of metal_ops.nerf."""
