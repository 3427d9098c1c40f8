"""What the package's programs share: errors, files, checkpoints, options, and how a command ends."""
