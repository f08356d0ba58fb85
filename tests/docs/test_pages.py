"""README and the pages are short, plain and whole: no link is dead, no page is lost, no sentence is too long."""

import os
import re
import subprocess
import sys
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
    words_of,
)
from pool.cli import main
from pool.docs import GROUPS, pages

README_LINES = 250
LONGEST, MEAN = 35, 20  # words of a sentence
# What a terminal of 80 columns has room for: beside a page's name, and in a block of code.
LINE, CODE = 60, 76
# Other words for things that have one already, and turns of phrase that have to be read twice.
BANNED = (
    *("agenda", "arena", "aside", "changeover", "desk", "doubt", "flight recorder", "guest", "helm", "homes", "lender"),
    *("lookout", "seat", "slab", "speed-up", "story", "stories", "stride", "successor", "teller", "turnover"),
    *("vacancy", "vacancies", "wish", "wishes"),
    *("are told", "goes on by itself", "held to be", "is another", "is had", "of late", "of no use", "so does one"),
    *("such without",),
)
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
    """A picture may be wider: it is worth a wider window."""
    narrow = [block.text for block in blocks(page) if block.language != "text"]
    too_long = [line for text in narrow for line in text.splitlines() if len(line) > CODE]
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
    pattern = re.compile(rf"\b({'|'.join(BANNED)})(s|d|ed|ing)?\b", re.IGNORECASE)
    found = [(match[0], text) for _, text in texts(page) if (match := pattern.search(text))]
    assert not found


# --- pool help


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as caught:
        main(["help", *argv])
    assert isinstance(caught.value.code, int)
    return caught.value.code, *capsys.readouterr()


def test_help_lists_each_page_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    status, out, err = run(capsys)
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
def test_help_prints_plain_markdown_in_a_pipe(capsys: pytest.CaptureFixture[str], page: Path) -> None:
    status, out, err = run(capsys, page.stem)
    assert (status, err) == (0, "")
    assert out.startswith(page.read_text().splitlines()[0])
    assert "<!--" not in out
    assert "\x1b" not in out


def test_help_lays_a_page_out_on_a_terminal() -> None:
    environ = {**os.environ, "TERM": "xterm-256color", "PAGER": "cat", "COLUMNS": "80"}
    ours, theirs = os.openpty()
    command = [sys.executable, "-P", "-m", "pool", "help", "models"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, env=environ) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b"")).decode()
        assert process.wait(30) == 0
    os.close(ours)
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "placed by memory (pool help placement)" in text
    assert not [mark for mark in ("```", "](", "<!--", "**") if mark in text]


def _read(terminal: int) -> bytes:
    """Nothing when the other side has closed it."""
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""


def test_help_of_an_unknown_page_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "modles")
    assert (status, out) == (2, "")
    assert "no page is called 'modles'; did you mean models?" in err


def test_help_of_the_beginning_of_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, "per")
    assert "did you mean performance?" in err


def test_help_of_a_command_says_where_it_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "start")
    assert status == 2
    assert "`pool start --help`" in err


def test_help_of_nothing_known_names_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "../../README")
    assert status == 2
    assert "`pool help` lists all pages" in err
