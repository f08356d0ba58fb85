"""Text of others, made fit for a terminal and for one line."""

import re

__all__ = ["printable"]

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


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
