"""What every Keras class of metal_ops needs from Keras."""

import keras


def require_tensorflow_backend() -> None:
    """Raises ImportError where Keras runs on another backend: the ops are TensorFlow's."""
    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            f"metal_ops: its layers and optimizers need Keras on TensorFlow, but Keras runs on "
            f"{keras.backend.backend()!r}; set KERAS_BACKEND=tensorflow (or unset it) before importing keras."
        )
