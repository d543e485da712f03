"""Reads options that name a file or a folder."""

import argparse
from pathlib import Path


def a_place(text: str) -> str:
    """Return a place as it was given.

    Raises:
        argparse.ArgumentTypeError: it is empty, as a shell's variable is that nobody has set: that would be this folder.
    """
    if not text.strip():
        msg = f'"{text}" names nothing; is a variable empty? This folder is .'
        raise argparse.ArgumentTypeError(msg)
    return text


def a_path(text: str) -> Path:
    """Return a path of this machine; what ``a_place`` refuses is none."""
    return Path(a_place(text))
