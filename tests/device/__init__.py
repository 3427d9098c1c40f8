"""Tests of the METAL device: the plugin's C table, loading, and TensorFlow's work on it."""
