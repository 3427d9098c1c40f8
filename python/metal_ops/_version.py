"""The one place where the versions are: pip, the command line and the builds take them from here.

Files that cannot read a Python file repeat TensorFlow's, and tests/test_house.py compares: pyproject.toml,
requirements.txt.
"""

__version__ = "0.9.0"
# TensorFlow's releases that the libraries can be built for: the version of it and of NumPy that make installs then, and
# the Pythons that it has wheels for, the one to take first. Libraries that are built for one release run in all its
# versions, and in no other release. tools/setup.sh reads these lines.
TENSORFLOW_RELEASES = {
    "2.18": ("2.18.1", "2.0.2", "3.11 3.12"),
    "2.19": ("2.19.1", "2.1.3", "3.12 3.11"),
    "2.20": ("2.20.0", "2.3.5", "3.13 3.12 3.11"),
    "2.21": ("2.21.0", "2.3.5", "3.13 3.12 3.11"),
}
# The last one that Apple's tensorflow-metal loads into.
TENSORFLOW_METAL_UNTIL = "2.19"
