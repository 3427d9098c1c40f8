"""Keras takes a GPU for NVIDIA's: where the device is METAL it is to ask neither for XLA nor for cuDNN by itself.

On Macs Keras leaves XLA out by its own decision. tf_keras asks TensorFlow whether a device is a plugin.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import wrapt  # TensorFlow needs it, too; calls back when a module is imported, be it before or after the device

# The questions that Keras 3 asks. A release that has others is left alone; TensorFlow's error then names XLA or cuDNN.
_QUESTIONS = {
    "keras.src.trainers.trainer": "model_supports_jit",  # by compile(jit_compile="auto"), or True, which warns
    "keras.src.backend.tensorflow.rnn": "cudnn_ok",  # by LSTM(use_cudnn="auto") and GRU
}


def teach_keras() -> None:
    """From now on the answers are no, also where Keras is imported later."""
    for module in _QUESTIONS:
        wrapt.register_post_import_hook(_answer, module)


def _answer(module: ModuleType) -> None:
    question = _QUESTIONS[module.__name__]
    if hasattr(module, question):
        setattr(module, question, _no)


def _no(*args: Any, **kwargs: Any) -> bool:
    return False
