"""Texts of others: whether they can travel, and how they are shown.

Python makes lone surrogates of the bytes of a file's name that are no UTF-8.
"""

import re

__all__ = ["is_utf8", "legible", "printable"]

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def is_utf8(text: str) -> bool:
    """Whether it can travel and come back as it was."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def legible(text: str) -> str:
    """The same, with each lone surrogate written out: `\\udcff`. For what is shown, never for what is looked up."""
    return text if is_utf8(text) else text.encode(errors="backslashreplace").decode()


def printable(text: str, keep: str = "\t") -> str:
    """Colours are taken out; every other character that a terminal could obey becomes its escape, such as `\\x1b`.

    So do line breaks, unless `keep` has them: what a worker prints or a client names cannot look like another line.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode("ascii")
        for char in _COLOUR.sub("", text)
    )
