"""The cost of encoding a launch, run by benchmarks/cases/hostmetal.py in a process of its own: a loaded device stays in
it. A line in, milliseconds out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402

from metal_ops import device  # noqa: E402

SOURCES = Path(__file__).parent / "launch"
LAUNCHES = 2000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "encode_launch.so"
        command = [sys.executable, "-m", "metal_ops", "build", "-o", str(library)]
        command += ["--kernels", "encode_launch.mm", "--shaders", "encode_launch.metal"]
        subprocess.run(command, cwd=SOURCES, check=True, stdout=subprocess.DEVNULL)
        device.load()
        encode_launch = tf.load_op_library(str(library)).encode_launch
        with tf.device("GPU:0"):
            x = tf.constant([1.0, 2.0, 3.0])
            for _ in sys.stdin:
                nanoseconds = float(encode_launch(x=x, launches=LAUNCHES))
                device.synchronize()
                print(nanoseconds * 1e-6, flush=True)


if __name__ == "__main__":
    main()
