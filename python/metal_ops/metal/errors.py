"""The one error that the compiler raises."""


class CompileError(Exception):
    """The compiler's messages, as it would print them."""
