"""The pages of the documentation, as text. Nothing comes in; a page's name and its Markdown go out."""

from importlib.resources import files

__all__ = ["pages"]


def pages() -> dict[str, str]:
    """The Markdown of each page, by its name."""
    found = sorted((each.name, each) for each in files(__name__).iterdir() if each.name.endswith(".md"))
    return {name.removesuffix(".md"): page.read_text("utf-8") for name, page in found}
