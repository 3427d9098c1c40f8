"""From MSL's spelling to C++ that clang reads: one flat text in, the same lines out."""

from __future__ import annotations

from . import places, spellings
from .declarations import Declarations
from .flat import FlatText


class Source(FlatText):
    """A flat text, its rewritten form (`text`), and the way back from there to the user's files.

    Syntax that C++ does not have is replaced, each time within its line, and macros stay as written: lines and columns
    do too.

    Args:
      original: The result of `flatten`.
      helps: offsets into it, and the help that clang needs there.
    """

    def __init__(self, original: str, helps: frozenset[tuple[int, str]] = frozenset()):
        super().__init__(original)
        declarations = Declarations(self)
        declarations.attributes()
        declarations.threadgroup_variables()
        places.elements(self, spellings.member_spaces(self), helps)
        spellings.coherent(self)
        spellings.array_parameters(self)
        spellings.vector_sizes(self)
        declarations.derived_constants()
        spellings.literals(self)
        spellings.strings(self)
        spellings.helps(self, helps)
        self.text = self.edited()
