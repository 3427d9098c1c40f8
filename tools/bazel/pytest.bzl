"""Tests of the built package: pytest on a copy of the checkout that holds what Bazel built."""

load("@tensorflow//:config.bzl", "PYTHON")

def pytest_test(name, paths, size = "large", **kwargs):
    """A test that runs pytest; no target where there are no such files, as rooms come and go.

    Args:
      name: the test.
      paths: test files or folders, from the top of the checkout.
      size: Bazel's; large has 15 minutes.
      **kwargs: what all rules have.
    """
    if not paths:
        return
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
        ],
        **kwargs
    )
