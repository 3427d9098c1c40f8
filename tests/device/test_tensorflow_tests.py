"""The program that runs tests of TensorFlow's own ops on the device, on files in the style of those."""

from __future__ import annotations

import json

from tests.processes import Process

OWN = """
import numpy as np
from tensorflow.python.framework import test_util
from tensorflow.python.ops import gradient_checker_v2, nn_ops
from tensorflow.python.platform import test
import tensorflow as tf

class SoftsignTest(test.TestCase):
    def testGradient(self):
        with self.cached_session():
            jacobians = gradient_checker_v2.compute_gradient(nn_ops.softsign, [np.ones([3], np.float32)])
            self.assertLess(gradient_checker_v2.max_error(*jacobians), 1e-3)

    @test_util.run_deprecated_v1
    def testSession(self):
        with self.session(use_gpu=True) as session:
            x = nn_ops.softsign(np.float32([-1, 0, 3]))
            self.assertAllClose(session.run(x), [-0.5, 0, 0.75])
            self.assertEqual(test.is_gpu_available(), "GPU" in x.device or test.gpu_device_name() != "")

    def testOnlyWithoutDevice(self):
        for part in range(2):
            with self.subTest(part):
                self.assertEqual(tf.config.list_physical_devices("GPU"), [])

    def testNowhere(self):
        self.assertEqual(1, 2)

    def testSkipped(self):
        self.skipTest("for a reason")

    def testPartSkipped(self):
        with self.subTest(1):
            self.skipTest("for a reason")

if __name__ == "__main__":
    for name in ("testMade",):  # as some files make their tests
        setattr(SoftsignTest, name, lambda self: self.assertAllClose(tf.nn.softsign([1.0]), [0.5]))
    test.main()
"""
ENDS = """
import os
from tensorflow.python.platform import test

class EndsTest(test.TestCase):
    def testEnds(self):
        if test.is_gpu_available():
            os._exit(3)

if __name__ == "__main__":
    test.main()
"""


def test_what_files_of_such_tests_give(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "softsign_test.py").write_text(OWN)
    (tmp_path / "ends_test.py").write_text(ENDS)
    out = tmp_path / "out.json"
    run = Process("-m", "tests.device.tensorflow_tests", str(tmp_path), "--out", str(out))
    code, said, err = run.finish(timeout=300)
    assert code == 1, said + err
    found = json.loads(out.read_text())
    tests = found[str(tmp_path / "a" / "softsign_test.py")]
    assert {name.removeprefix("SoftsignTest."): what for name, (what, _) in tests.items()} == {
        "testGradient": "passed",
        "testSession": "passed",
        "testMade": "passed",
        "testOnlyWithoutDevice": "failed",
        "testNowhere": "fails on the CPU, too",
        "testSkipped": "skipped",
        "testPartSkipped": "skipped",
        "test_session": "skipped",
    }
    ends = found[str(tmp_path / "ends_test.py")]
    what, why = ends["EndsTest.testEnds"]
    assert what == "failed" and why.startswith("did not end: exit status 3")
    assert "FAILED softsign_test.py SoftsignTest.testOnlyWithoutDevice: AssertionError: " in said
    assert "3 passed, 2 failed" in said


def test_a_folder_without_tests_is_one_sentence(tmp_path):
    code, _, err = Process("-m", "tests.device.tensorflow_tests", str(tmp_path)).finish()
    assert code == 2 and f"{tmp_path}: expected a folder with files *_test.py, found none" in err
