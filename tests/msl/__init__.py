"""Tests of the shader compiler: language, library, scheduling, errors, command line."""
