"""The one place where the version is: pip, the command line and the libraries take it from here."""

__version__ = "0.1.0"
