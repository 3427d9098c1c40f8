"""Where the headers of TensorFlow 2.8 to 2.17 live in the installed one.

Folders moved, hardly ever single files: `tensorflow/tsl` became `tsl` and then `xla/tsl`, the names of Bazel's
`third_party/eigen3` are not in the packages any more. So the old names of folders become links to the new ones, in
folders that the compiler searches last. Nothing here depends on the includes of a source.
"""

from __future__ import annotations

from pathlib import Path

# (old folder, folders of newer releases). All that exist are searched, in this order; a header that the installed
# TensorFlow has by its old name is never looked for here.
MOVED = (
    ("third_party/eigen3/Eigen", "Eigen"),
    ("third_party/eigen3/unsupported", "unsupported"),
    (
        "third_party/eigen3/unsupported/Eigen/CXX11/src/FixedPoint",
        "xla/tsl/framework/fixedpoint",
    ),
    ("unsupported/Eigen/CXX11/src/ThreadPool", "Eigen/src/ThreadPool"),
    ("unsupported/Eigen/CXX11/src/util", "Eigen/src/Core/util"),
    ("tensorflow/core/lib/bfloat16", "tensorflow/core/platform"),
    ("tensorflow/core/lib/core", "tensorflow/core/platform", "tsl/platform", "xla/tsl/platform"),
    ("tensorflow/core/lib", "tensorflow/core", "tsl/lib", "xla/tsl/lib"),
    (
        "tensorflow/core/platform/default",
        "tsl/platform/default",
        "xla/tsl/platform/default",
        "tensorflow/core/platform",
        "tsl/platform",
        "xla/tsl/platform",
    ),
    ("tensorflow/core/platform", "tsl/platform", "xla/tsl/platform"),
    ("tensorflow/core/framework", "tsl/framework", "xla/tsl/framework"),
    ("tensorflow/core/util", "tsl/util", "xla/tsl/util"),
    ("tensorflow/core/profiler/backends", "xla/backends/profiler"),
    ("tensorflow/core/profiler/internal", "xla/tsl/profiler/backends"),
    (
        "tensorflow/core/profiler",
        "tsl/profiler",
        "xla/tsl/profiler",
        "tsl/profiler/protobuf",
        "xla/tsl/profiler/protobuf",
    ),
    ("tensorflow/core/protobuf", "tsl/protobuf", "xla/tsl/protobuf", "tensorflow/core/framework"),
    ("tensorflow/core/data", "tensorflow/core/framework"),
    ("tensorflow/core/distributed_runtime", "xla/tsl/distributed_runtime"),
    ("tensorflow/core/common_runtime/device", "xla/tsl/framework"),
    ("tensorflow/core/common_runtime/gpu", "xla/tsl/framework", "xla/stream_executor/gpu"),
    ("tensorflow/core/common_runtime", "xla/tsl/framework"),
    (
        "tensorflow/core/kernels",
        "xla/tsl/framework/contraction",
        "xla/tsl/framework/convolution",
    ),
    ("tensorflow/core/tpu", "xla/stream_executor/tpu"),
    ("tensorflow/stream_executor/lib", "tsl/platform", "xla/tsl/platform"),
    (
        "tensorflow/stream_executor",
        "xla/stream_executor",
        "xla/stream_executor/integrations",
        "tsl/protobuf",
        "xla/tsl/protobuf",
    ),
    (
        "tensorflow/tsl/platform/default",
        "tsl/platform/default",
        "xla/tsl/platform/default",
        "tsl/platform",
        "xla/tsl/platform",
    ),
    ("tensorflow/tsl/platform", "tensorflow/core/platform"),
    ("tensorflow/tsl", "tsl", "xla/tsl"),
    ("tsl/platform/default", "tsl/platform", "xla/tsl/platform"),
    ("tsl/platform", "tensorflow/core/platform"),
    ("tsl", "xla/tsl"),
    ("tensorflow/compiler/xla/tsl", "xla/tsl", "tsl"),
    ("tensorflow/compiler/xla", "xla"),
)


def link_moved(tensorflow: Path, folder: Path) -> list[Path]:
    """Links the old names of folders to where the installed TensorFlow has them.

    Args:
      tensorflow: TensorFlow's include folder.
      folder: an empty folder to put the links into.

    Returns:
      Include folders below `folder`, to be searched in this order and after all others.
    """
    layers: list[list[str]] = []
    for old, *places in MOVED:
        for new in places:
            if not (tensorflow / new).is_dir():
                continue
            # A name can be linked once per layer, and nothing lies below a link: later ones come in a later layer.
            number = max(
                (i + 1 for i, layer in enumerate(layers) if any(_overlap(old, a) for a in layer)),
                default=0,
            )
            if number == len(layers):
                layers.append([])
            layers[number].append(old)
            link = folder / str(number) / old
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(tensorflow / new, target_is_directory=True)
    return [folder / str(i) for i in range(len(layers))]


def _overlap(a: str, b: str) -> bool:
    return f"{a}/".startswith(f"{b}/") or f"{b}/".startswith(f"{a}/")
