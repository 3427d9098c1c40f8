"""Tests that need the Metal device. Each file runs in a process of its own: see conftest.py."""
