"""Texts that UTF-8 cannot hold: Python makes lone surrogates of the bytes of a file's name that are no UTF-8."""

__all__ = ["is_utf8", "legible"]


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
