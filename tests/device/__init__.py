"""Tests of the METAL device: the plugin's C table, loading, and what TensorFlow does on it."""
