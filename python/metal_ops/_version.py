"""The one place where the versions are: pip, the command line and the builds take them from here.

What cannot read a Python file repeats TensorFlow's, and tests/test_house.py compares: pyproject.toml, requirements.txt.
"""

__version__ = "0.1.0"
# The libraries are built for it, and run in all releases of its first two numbers.
TENSORFLOW = "2.18.1"
TENSORFLOW_RELEASE = TENSORFLOW.rpartition(".")[0]
