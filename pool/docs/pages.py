"""The pages: their order, their text, and what each is for."""

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["GROUPS", "NoSuchPage", "Page", "page", "pages"]

GROUPS = {
    "Serve models": ("models", "handlers", "placement", "gpus", "batching", "stateful", "versions"),
    "Run the pool": (
        "deployment",
        "remote",
        "pools",
        "cluster",
        "gateway",
        "monitoring",
        "troubleshooting",
        "performance",
        "benchmarking",
    ),
    "Look up": ("cli", "configuration", "python", "errors", "json", "metrics"),
    "Change the code": ("contributing", "architecture", "words", "states", "wire", "decisions"),
}
"""The pages in the order in which `pool help` lists them."""

_FOLDER = Path(__file__).parent
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)  # they tell the tests how to run a block
_PROMISE = "After this page you can "


class NoSuchPage(LookupError):
    """No page has this name."""


@dataclass(frozen=True, slots=True)
class Page:
    """`text`: its Markdown, without what only the tests read."""

    name: str
    text: str

    @property
    def about(self) -> str:
        """What a reader can do after it: the first sentence below the title."""
        paragraph = " ".join(self.text.split("\n\n")[1].split())
        sentence = re.split(r"(?<=[.!?:])\s", paragraph)[0].rstrip(".:").removeprefix(_PROMISE)
        return sentence[:1].upper() + sentence[1:]


def pages() -> dict[str, list[Page]]:
    """All pages by group."""
    there = {path.stem for path in _FOLDER.glob("*.md")}
    return {group: [page(name) for name in names if name in there] for group, names in GROUPS.items()}


def page(name: str) -> Page:
    """Raises `NoSuchPage`."""
    if not any(name in names for names in GROUPS.values()):
        raise NoSuchPage(name)
    try:
        text = (_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NoSuchPage(name) from None
    return Page(name, _COMMENT.sub("", text))
