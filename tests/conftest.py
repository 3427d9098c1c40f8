"""Fixtures for all tests: quiet TensorFlow, and the devices that the op tests run on."""

from __future__ import annotations

import collections
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported

import pytest
import tensorflow as tf

import metal_ops  # noqa: F401 - loads the METAL device where METAL_OPS_DEVICE=1 asks for it
from tests.browser import pytest_terminal_summary  # noqa: F401
from tests.forked import Server


def devices() -> list[str]:
    """The devices that op tests run on: the CPU, and the METAL device in a process that has loaded it."""
    return ["/CPU:0"] + ["/GPU:0"] * bool(tf.config.list_physical_devices("GPU"))


def pytest_configure(config):
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        Server.of_this_run()  # one for all workers


def pytest_collection_modifyitems(config, items):
    """METAL_OPS_TEST_SHARE=5 keeps the first of each test's cases and every fifth after it.

    For running under other conditions what has been run whole. The tests of a folder that runs in processes of its own
    are counted in there.
    """
    share = int(os.environ.get("METAL_OPS_TEST_SHARE", "1"))
    if share < 1:
        raise pytest.UsageError(f"METAL_OPS_TEST_SHARE is {share}; expected 1 or more")
    if share == 1:
        return
    seen: collections.Counter[str] = collections.Counter()
    kept, left = [], []
    for item in items:
        test = item.nodeid.split("[")[0]
        (left if seen[test] % share else kept).append(item)
        seen[test] += 1
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        chosen = getattr(metafunc.cls, "DEVICES", None) or devices()
        metafunc.parametrize("device", chosen, indirect=True)


@pytest.fixture
def device(request):
    """Runs the test on one device, with soft placement off: what has no kernel there fails."""
    soft = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)
    try:
        with tf.device(request.param):
            yield request.param
    finally:
        tf.config.set_soft_device_placement(soft)
