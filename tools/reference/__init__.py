"""Generates the reference pages in docs/ (`python -m tools.reference`) and the stubs (stub.py)."""
