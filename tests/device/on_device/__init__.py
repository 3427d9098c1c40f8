"""Tests that need the device in their process: each file runs in one of its own (conftest.py)."""
