"""Tests that `make sanitize-ops` runs beside a choice of the other tests."""
