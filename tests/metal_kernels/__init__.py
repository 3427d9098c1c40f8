"""Tests of the Metal kernels, of the tools that build them, and of the guide."""
