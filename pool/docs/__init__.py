"""The pages of the documentation, as text. Nothing comes in; a page's name and its Markdown go out."""

from pathlib import Path


def pages() -> dict[str, str]:
    """The Markdown of each page, by its name."""
    return {page.stem: page.read_text("utf-8") for page in sorted(Path(__file__).parent.glob("*.md"))}
