"""Reads a COLMAP model by pycolmap and prints it as JSON: a program of its own, which `colmap.py` starts.

A damaged file can make a parser take all memory, never end, or end its process: then it is not the trainer's. It
imports nothing of this package, so that it starts at once.
"""

import json
import resource
import sys

_MOST_POINTS = 20_000


def main(folder: str, most_memory: int) -> int:
    """Prints cameras, registered images and some of the points."""
    resource.setrlimit(resource.RLIMIT_AS, (most_memory, most_memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import pycolmap

    try:
        model = pycolmap.Reconstruction(folder)
        cameras = {}
        for number, camera in model.cameras.items():
            names = [name.strip() for name in camera.params_info.split(",")]
            cameras[number] = {
                "model": camera.model.name,
                "width": camera.width,
                "height": camera.height,
                "params": dict(zip(names, camera.params.tolist(), strict=True)),
            }
        images = [
            {
                "name": image.name,
                "camera": image.camera_id,
                "cam_from_world": image.cam_from_world().matrix().tolist(),
            }
            for image in model.images.values()
            if image.has_pose
        ]
        every = -(-len(model.points3D) // _MOST_POINTS) or 1
        chosen = list(model.points3D)[::every]
        points = [model.points3D[number].xyz.tolist() for number in chosen]
        found = {"cameras": cameras, "images": images, "points": points}
    except Exception as why:  # pycolmap raises all errors of its parsers
        found = {"error": f"{type(why).__name__}: {why}"}
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
