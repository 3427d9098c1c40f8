"""An adapter of kernels without TensorFlow."""
