"""What a user can get wrong: raised with a sentence that names the file and the field, exit code 2."""


class NerfError(Exception):
    """Bad input from the user: a scene, a checkpoint or an option.

    The message is one sentence that names the file and the field, what was expected, what was
    found and what to do; the command line prints it and exits with code 2.
    """


class SceneError(NerfError):
    """A scene that cannot be read or makes no sense."""


class CheckpointError(NerfError):
    """A run folder or checkpoint that cannot be read or does not fit the request."""


class OutputError(NerfError, OSError):
    """A file or folder that cannot be written."""
