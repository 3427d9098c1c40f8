"""Generates the reference pages in docs/ and the stub of the raw ops: `python -m tools.reference`."""
