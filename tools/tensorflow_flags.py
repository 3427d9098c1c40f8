"""Writes the flags of compilers and linkers for the TensorFlow of this Python: `tensorflow_flags.py <folder>`."""

import sys
from pathlib import Path

import tensorflow as tf

include, libraries = tf.sysconfig.get_include(), tf.sysconfig.get_lib()
cflags = [
    *(flag.replace("-I", "-isystem ") for flag in tf.sysconfig.get_compile_flags()),
    f"-ffile-prefix-map={include}=tensorflow",
    # One release's deprecated name is the only name that an earlier one has.
    "-Wno-deprecated-declarations",
    # From 2.21 on the headers do not say it.
    f"-DMETAL_OPS_TENSORFLOW={tf.__version__}",
]
folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "ldflags").write_text(" ".join(tf.sysconfig.get_link_flags()))
(folder / "rpath").write_text(f"-Wl,-rpath,{libraries}")
(folder / "cflags").write_text(" ".join(cflags))  # last: make looks at this one
