"""Tests of the built package: pytest on a copy of the checkout that holds what Bazel built."""

load("@tensorflow//:config.bzl", "PYTHON")

def pytest_test(name, paths, size = "enormous", **kwargs):
    """A test that runs pytest.

    Args:
      name: the test.
      paths: test files or folders, from the top of the checkout, and options.
      size: Bazel's; enormous has an hour, for slow and busy machines.
      **kwargs: what all rules have.
    """
    native.sh_test(
        name = name,
        size = size,
        srcs = ["//tools/bazel:run_pytest.sh"],
        args = [PYTHON] + paths,
        data = [
            ":all_files",
            ":programs",
            "//:all_files",
            "//device:all_files",
            "//graph:all_files",
            "//hostmetal:all_files",
            "//kernels:all_files",
            "//ops:all_files",
            "//python:metal_ops",
            "//tools/bazel:all_files",
        ],
        **kwargs
    )
