"""README and the pages of `pool/docs`, as the tests read them: paragraphs, sentences, links, blocks of code.

A comment right before a block tells how it is run:

    <!-- not run: REASON -->   not at all
    <!-- setup: CODE -->       Python (for a `python` block) or shell (for any other) that runs before it
    <!-- then: CODE -->        Python that runs after it: what it did is looked at
"""

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
FOLDER = ROOT / "pool" / "docs"
SHIPPED = tuple(sorted(FOLDER.glob("*.md")))
PAGES = (README, *SHIPPED)

_COMMENT = re.compile(r"<!--\s*([\w ]+?):\s*(.*?)\s*-->", re.DOTALL)
# A colon ends a thought as a full stop does. "e.g." and the like are not written.
_SENTENCE = re.compile(r"(?<=[.!?:])[)\"”*]*\s+")
_WORD = re.compile(r"\w")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    notes: dict[str, str] = field(compare=False)

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


@cache
def tokens(page: Path) -> tuple[Token, ...]:
    return tuple(MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")))


def blocks(page: Path) -> list[Block]:
    """Indented ones too: they have no language."""
    found = []
    notes: dict[str, str] = {}
    for token in tokens(page):
        if token.type == "html_block":
            notes |= dict(_COMMENT.findall(token.content))
            continue
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            found.append(Block(page, token.map[0] + 1, token.info.strip(), token.content, notes))
        notes = {}
    return found


def _inline(page: Path) -> list[tuple[str, Token]]:
    """Each piece of text with what it is in: `p`, `h1`, `td`."""
    found = []
    around = ""
    for token in tokens(page):
        if token.type in ("paragraph_open", "heading_open", "td_open", "th_open"):
            around = token.tag
        if token.type == "inline":
            found.append((around, token))
    return found


def plain(token: Token) -> str:
    """A span of code counts as one word."""
    parts = []
    for child in token.children or ():
        if child.type == "text":
            parts.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif child.type == "code_inline":
            parts.append("CODE")
    return "".join(parts)


def first_paragraph(page: Path) -> str:
    """Below the title, which is the first line."""
    (title, _), (kind, token) = _inline(page)[:2]
    assert (title, kind) == ("h1", "p"), f"{page.name} begins with {title}, {kind}"
    return plain(token)


def headings(page: Path) -> list[str]:
    return [plain(token) for kind, token in _inline(page) if kind.startswith("h")]


def texts(page: Path) -> list[tuple[str, str]]:
    return [(kind, plain(token)) for kind, token in _inline(page)]


def sentences(page: Path) -> list[str]:
    """Of paragraphs, lists and cells; not headings."""
    return [
        sentence
        for kind, text in texts(page)
        if not kind.startswith("h")
        for sentence in _SENTENCE.split(text)
        if _WORD.search(sentence)
    ]


def links(page: Path) -> list[str]:
    children = [child for _, token in _inline(page) for child in token.children or ()]
    return [str(child.attrGet("href")) for child in children if child.type == "link_open"]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    found = set()
    for _, token in _inline(page):
        text = "".join(child.content for child in token.children or () if child.type in ("text", "code_inline"))
        found.add(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"))
    return found
