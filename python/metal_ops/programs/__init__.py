"""Shared by the package's programs: errors, files, checkpoints, options, and how a command ends."""
