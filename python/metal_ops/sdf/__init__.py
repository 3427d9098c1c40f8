"""The program for signed distances of meshes: `python -m metal_ops sdf`."""
