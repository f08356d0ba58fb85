"""README and the pages are short, plain and whole: no link is dead, no page is lost, no sentence is too long."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from docs.markdown import (
    FOLDER,
    PAGES,
    README,
    SHIPPED,
    anchors,
    blocks,
    first_paragraph,
    links,
    sentences,
    texts,
)
from docs.plain import BANNED, LONGEST, MEAN, words_of
from pool.docs import GROUPS, pages
from support.commands import command_line, in_process

README_LINES = 250
# What a terminal of 80 columns has room for: beside a page's name, and in a block of code.
LINE, CODE = 60, 78
# Pages that explain words which are gone, or that came before them.
EXPLAIN_WORDS = {"words.md"}

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
every_shipped_page = pytest.mark.parametrize("page", SHIPPED, ids=lambda page: page.name)


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= README_LINES


def test_each_page_is_listed_once_and_each_listed_page_is_there() -> None:
    listed = [name for names in GROUPS.values() for name in names]
    assert len(listed) == len(set(listed))
    there = {page.stem for page in FOLDER.glob("*.md")}
    assert there == set(listed)
    assert [page.name for group in pages().values() for page in group] == listed


@every_shipped_page
def test_a_page_begins_with_what_its_reader_can_do_after_it(page: Path) -> None:
    assert first_paragraph(page).startswith("After this page you can ")


@every_page
def test_each_link_leads_somewhere(page: Path) -> None:
    for link in links(page):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} is not there"
        assert not anchor or anchor in anchors(target), f"{link}: no heading has this name"


@every_shipped_page
def test_a_page_links_only_what_is_shipped_with_it(page: Path) -> None:
    for link in links(page):
        assert link.startswith(("https://", "#")) or "/" not in link, link


@every_shipped_page
def test_code_fits_into_a_terminal(page: Path) -> None:
    """Pictures too: a broken line breaks them."""
    too_long = [line for block in blocks(page) for line in block.text.splitlines() if len(line) > CODE]
    assert not too_long


@every_page
def test_sentences_are_short(page: Path) -> None:
    found = sentences(page)
    assert found
    too_long = [sentence for sentence in found if words_of(sentence) > LONGEST]
    assert not too_long, too_long
    assert sum(map(words_of, found)) / len(found) <= MEAN


@every_page
def test_each_thing_has_one_word(page: Path) -> None:
    if page.name in EXPLAIN_WORDS:
        return
    found = [(match[0], text) for _, text in texts(page) if (match := BANNED.search(text))]
    assert not found


# --- pool help


def test_help_lists_each_page_with_one_line() -> None:
    status, out, err = in_process("help")
    assert (status, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for group, found in pages().items():
        assert group in lines
        for page in found:
            assert f"{page.name} {page.about}" in lines
            assert page.about[0].isupper()
            assert not page.about.startswith("After this page")
            assert len(page.about) <= LINE


@every_shipped_page
def test_help_prints_plain_markdown_in_a_pipe(page: Path) -> None:
    status, out, err = in_process("help", page.stem)
    assert (status, err) == (0, "")
    assert out.startswith(page.read_text().splitlines()[0])
    assert "<!--" not in out
    assert "\x1b" not in out


def test_help_lays_a_page_out_on_a_terminal() -> None:
    lines = on_a_terminal("models")
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "placed by memory (pool help placement)" in text
    assert not [mark for mark in ("```", "](", "<!--", "**") if mark in text]


@pytest.mark.parametrize("name", ["architecture", "configuration"])
def test_help_cuts_no_name_in_a_table(name: str) -> None:
    """Names that are too long for their column go on in the next line."""
    page = next(each for each in SHIPPED if each.stem == name)
    assert "…" not in page.read_text()
    lines = on_a_terminal(name)
    assert any("──" in line for line in lines), "a page with tables"
    assert not [line for line in lines if "…" in line]


def on_a_terminal(page: str) -> list[str]:
    """What `pool help` shows there, in 80 columns."""
    environ = {**os.environ, "TERM": "xterm-256color", "PAGER": "cat", "COLUMNS": "80"}
    ours, theirs = os.openpty()
    command = command_line(None, "help", page)
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, env=environ) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b"")).decode()
        assert process.wait(30) == 0
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()


def _read(terminal: int) -> bytes:
    """Nothing when the other side has closed it."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_help_of_an_unknown_page_names_the_nearest() -> None:
    status, out, err = in_process("help", "modles")
    assert (status, out) == (2, "")
    assert "no page is called 'modles'; did you mean models?" in err


def test_help_of_the_beginning_of_a_name() -> None:
    _, _, err = in_process("help", "per")
    assert "did you mean performance?" in err


def test_help_of_a_command_says_where_it_is_explained() -> None:
    status, _, err = in_process("help", "start")
    assert status == 2
    assert "`pool start --help`" in err


def test_help_of_nothing_known_names_the_list() -> None:
    status, _, err = in_process("help", "../../README")
    assert status == 2
    assert "`pool help` lists all pages" in err
