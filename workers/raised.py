"""What an exception says of itself, for whoever asked for what raised it."""

__all__ = ["text_of"]


def text_of(error: BaseException) -> str:
    """Never raises, though a class of a model's own may do so when it is asked for its text."""
    try:
        return str(error)
    except Exception:
        return f"<a {type(error).__name__} that cannot say why>"
