"""Fixtures for all tests: quiet TensorFlow, and the devices that the op tests run on."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported

import pytest
import tensorflow as tf

import metal_ops  # noqa: F401 - loads the METAL device where METAL_OPS_DEVICE=1 asks for it
from tests import suites
from tests.browser import pytest_terminal_summary  # noqa: F401
from tests.coverage_of_shaders import pytest_addoption, pytest_cmdline_main  # noqa: F401
from tests.forked import Server


def devices() -> list[str]:
    """The devices that op tests run on: the CPU, and the METAL device in a process that has loaded it."""
    return ["/CPU:0"] + ["/GPU:0"] * bool(tf.config.list_physical_devices("GPU"))


def pytest_configure(config):
    for read in (suites.depth, suites.shard):
        try:
            read()
        except ValueError as error:
            raise pytest.UsageError(str(error)) from error
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        Server.of_this_run()  # one for all workers


def pytest_ignore_collect(collection_path):
    return True if suites.left_to_others(collection_path) else None


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    """Markers before pytest looks at -m and -k, and the run's depth for the tests that these
    leave."""
    suites.mark(items)
    yield
    suites.select(config, items)


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        chosen = getattr(metafunc.cls, "DEVICES", None) or devices()
        metafunc.parametrize("device", chosen, indirect=True)


@pytest.fixture
def device(request):
    """Runs the test on one device, with soft placement off: ops without a kernel there fail."""
    soft = tf.config.get_soft_device_placement()
    tf.config.set_soft_device_placement(False)
    try:
        with tf.device(request.param):
            yield request.param
    finally:
        tf.config.set_soft_device_placement(soft)
