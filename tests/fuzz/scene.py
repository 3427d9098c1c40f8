"""Scenes: NeRF-synthetic and instant-ngp folders and .npz files, with one file of each mutated."""

from __future__ import annotations

import io
import json
import random
import shutil
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from metal_ops.nerf.errors import SceneError
from metal_ops.nerf.scenes import Scene, load_scene

from . import archives, engine

_EYE = np.eye(4).tolist()
_BLENDER = {
    "camera_angle_x": 0.7,
    "frames": [{"file_path": f"./r_{i}", "transform_matrix": _EYE, "rotation": 0.1} for i in "01"],
}
_NGP = {
    "fl_x": 3.0, "fl_y": 3.0, "cx": 1.0, "cy": 1.0, "w": 2, "h": 2, "k1": 0.01, "k2": 0, "p1": 0, "p2": 0,
    "camera_angle_x": 0.7, "k3": 0, "is_fisheye": False, "aabb_scale": 2, "scale": 0.33, "offset": [0.5, 0.5, 0.5],
    "camera_model": "OPENCV", "latlong": False, "skew": 0, "n_frames": 0,
    "frames": [
        {"file_path": f"r_{i}.png", "transform_matrix": _EYE, "sharpness": 30.5, "fl_x": 3.0} for i in "01"
    ],
}  # fmt: skip
_FISHEYE = {
    "fl_x": 1.0, "fl_y": 1.0, "x_fov": 60, "cx": 1.0, "cy": 1.0, "w": 2, "h": 2, "k1": 0.01, "k2": 0, "k3": 0, "k4": 0,
    "camera_model": "OPENCV_FISHEYE", "aabb": [[-1, -1, -1], [1, 1, 1]], "offset": 0.5, "train_filenames": ["r_1.png"],
    "test_filenames": ["r_0.png"],
    "frames": [{"file_path": f"r_{i}.png", "transform_matrix": _EYE, "mask_path": "mask.png"} for i in "01"],
}  # fmt: skip
Content = tuple[str, str, bytes, int]  # scene, file in it, its content, downscale


def _png(mode: str) -> bytes:
    file = io.BytesIO()
    pixels = np.arange(2 * 2 * 4, dtype=np.uint8).reshape(2, 2, 4) * 15
    image = Image.fromarray(pixels)
    image = image.quantize(4) if mode == "P" else image.convert(mode)
    image.save(file, "PNG")
    return file.getvalue()


class SceneReader:
    """`load_scene` gives a scene that a trainer could take, or a SceneError in one sentence."""

    name = "scene"

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        self._root = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self._pngs = [_png(mode) for mode in ("RGBA", "RGBA", "RGB", "L", "LA", "P", "1")]
        self._npz = {
            "images.npy": archives.npy(np.linspace(0, 1, 24, dtype="f4").reshape(2, 2, 2, 3)),
            "poses.npy": archives.npy(np.tile(np.eye(4, dtype="f4"), (2, 1, 1))),
            "focal.npy": archives.npy(np.float64(3)),
        }
        blender = json.dumps(_BLENDER).encode()
        self._good = {
            ("blender", "transforms_train.json"): blender,
            ("blender", "transforms_test.json"): blender,
            ("blender", "r_0.png"): self._pngs[0],
            ("blender", "r_1.png"): self._pngs[0],
            ("ngp", "transforms.json"): json.dumps(_NGP).encode(),
            ("fisheye", "transforms.json"): json.dumps(_FISHEYE).encode(),
            ("fisheye", "r_0.png"): self._pngs[0],
            ("fisheye", "r_1.png"): self._pngs[0],
            ("fisheye", "mask.png"): _png("L"),
            ("ngp", "r_0.png"): self._pngs[0],
            ("ngp", "r_1.png"): self._pngs[0],
            ("npz", "tiny.npz"): archives.pack(self._npz),
        }
        for (scene, file), data in self._good.items():
            (self._root / scene).mkdir(exist_ok=True)
            (self._root / scene / file).write_bytes(data)
        for scene in ("blender", "ngp", "fisheye", "npz"):
            assert self.feed((scene, "more", b"", 1)) == "accepted"

    def make(self, rng: random.Random) -> Content:
        scene = rng.choice(("blender", "blender", "ngp", "ngp", "fisheye", "npz"))
        downscale = rng.choice((1, 1, 1, 2, 3))
        if scene == "npz":
            data = archives.mutate_npz(self._good["npz", "tiny.npz"], rng, self._npz)
            return scene, "tiny.npz", data, downscale
        if rng.random() < 0.3:
            image = "mask.png" if scene == "fisheye" and rng.random() < 0.3 else "r_1.png"
            return scene, image, archives.mutate_png(rng.choice(self._pngs), rng), downscale
        file = (
            "transforms.json"
            if scene in ("ngp", "fisheye")
            else rng.choice(("transforms_train.json", "transforms_test.json"))
        )
        good = self._good[scene, file]
        if rng.random() < 0.2:
            return scene, file, engine.mutate_bytes(good, rng), downscale
        text = engine.dump(engine.mutate_tree(json.loads(good), rng), rng)
        return scene, file, text.encode("utf-8", "surrogatepass"), downscale

    def feed(self, content: Content) -> str:
        scene, file, data, downscale = content
        path = self._root / scene / file
        path.write_bytes(data)
        data_path = path if scene == "npz" and file == "tiny.npz" else self._root / scene
        if scene == "npz":
            data_path = self._root / "npz" / "tiny.npz"
        try:
            _check(load_scene(data_path, downscale))
        except SceneError as error:
            # An image may lie anywhere.
            engine.check_sentence(error, str(self._root / scene), "image")
            return "refused"
        finally:
            if (scene, file) in self._good:
                path.write_bytes(self._good[scene, file])
            else:
                path.unlink()
        return "accepted"

    def files(self, content: Content) -> engine.Kept:
        return {f"{content[0]}-downscale{content[3]}-{content[1]}": content[2]}

    def close(self) -> None:
        shutil.rmtree(self._root)


def _check(scene: Scene) -> None:
    """The properties that a trainer relies on."""
    for views in (scene.train, scene.test):
        images, cameras = views.images, views.cameras
        if images.dtype != np.uint8 or images.shape != (
            len(views),
            cameras.height,
            cameras.width,
            4,
        ):
            raise engine.Wrong(
                f"images {images.dtype} {images.shape} for {cameras.width}x{cameras.height}"
            )
        for array in (cameras.poses, cameras.intrinsics, cameras.distortion):
            if (
                array.dtype != np.float32
                or len(array) != len(views)
                or not np.isfinite(array).all()
            ):
                raise engine.Wrong(f"cameras: {array!r}")
        if not (cameras.intrinsics[:, :2] > 0).all():
            raise engine.Wrong(f"focal lengths: {cameras.intrinsics!r}")
        for view in range(min(len(views), 4)):
            row, column = (part.ravel() for part in np.mgrid[: cameras.height, : cameras.width])
            rays, valid = cameras.rays(view, column + 0.5, row + 0.5), views.valid(view)
            if not np.isfinite(rays if valid is None else rays[valid.ravel()]).all():
                raise engine.Wrong(f"rays: {cameras!r}")
        if not len(views) or not all(name.isprintable() for name in views.names):
            raise engine.Wrong(f"names: {views.names!r}")
    space = scene.space
    if not np.isfinite(space.aabb).all() or not (space.aabb[1] > space.aabb[0]).all():
        raise engine.Wrong(f"box: {space.aabb!r}")
    if (
        not 1 <= space.n_levels <= 11
        or not np.isfinite([space.near, space.diagonal, *scene.up]).all()
    ):
        raise engine.Wrong(f"space: {space!r}, up {scene.up!r}")
    if not all("\n" not in note and len(note) < 5000 for note in scene.notes):
        raise engine.Wrong(f"notes: {scene.notes!r}")
