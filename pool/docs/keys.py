"""The keys of `config.toml`, as the page `configuration` has them: what is said of a key is said there alone.

The page's tables come from the schema; a test holds that no key is missing.
"""

import re
from dataclasses import dataclass

from pool.docs.pages import page

__all__ = ["Key", "dotted", "keys", "keys_named"]

_SECTION = re.compile(r"## `(\[+(\w+)\]+)`")
_CELL = re.compile(r"(?<!\\)\|")
_LINK = re.compile(r"\[([^\]]+)\]\((\w+)\.md[^)]*\)")


@dataclass(frozen=True, slots=True)
class Key:
    """`section`: as it is written, `[pool]` or `[[model]]`. `takes` has the range."""

    section: str
    name: str
    takes: str
    default: str
    means: str


def dotted(written: str) -> str:
    """`queue.max_jobs` of `[queue] max_jobs`."""
    return ".".join(re.findall(r"[\w.]+", written))


def keys() -> list[Key]:
    found, section = [], ""
    for line in page("configuration").text.splitlines():
        if line.startswith("#"):
            heading = _SECTION.match(line)
            section = heading[1] if heading else ""
        elif section and line.startswith("| `"):
            found.append(Key(section, *(_plain(cell) for cell in _CELL.split(line.strip().strip("|")))))
    return found


def keys_named(asked: str) -> list[Key]:
    """`max_jobs`, `queue.max_jobs` or `[queue] max_jobs`; a section's name has all of its keys."""
    name = dotted(asked)
    last = [
        key for key in keys() if name in (dotted(f"{key.section} {key.name}"), key.name, key.name.rpartition(".")[2])
    ]
    return last or [key for key in keys() if name == dotted(key.section)]


def _plain(cell: str) -> str:
    return _LINK.sub(r"\1 (pool help \2)", cell.strip()).replace("`", "").replace("\\|", "|")
