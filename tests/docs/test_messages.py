"""Errors, log lines and help texts are short and plain, as the pages are: the same words are not used."""

import pytest

from docs.markdown import ROOT
from docs.messages import Said, messages, messages_of
from docs.plain import BANNED, LONGEST_SAID, MEAN_SAID, words_of

pytestmark = pytest.mark.pages

FEWEST = 900  # there are about 1,200; fewer were found if the search were broken


@pytest.fixture(scope="module")
def said() -> list[Said]:
    found = messages()
    assert len(found) > FEWEST
    return found


def test_no_message_uses_a_word_that_has_to_be_read_twice(said: list[Said]) -> None:
    assert [f"{match[0]} in {each}" for each in said if (match := BANNED.search(each.text))] == []


def test_the_sentences_of_messages_are_short(said: list[Said]) -> None:
    sentences = [(words_of(sentence), str(each)) for each in said for sentence in each.sentences()]
    assert [text for words, text in sentences if words > LONGEST_SAID] == []
    assert sum(words for words, _ in sentences) / len(sentences) <= MEAN_SAID


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ('raise ValueError(f"{name} is {number}; give a number")', ["X is X; give a number"]),
        ('log.info("slot %d: restart requested", 1)', ["slot X: restart requested"]),
        ("x = [f\"one {'two or three words'}\"]", ["two or three words"]),
        ('"""What this file is for."""', []),
        ('def f() -> "dict[str, one | two]":\n    """What it does for them."""', []),
        ('@pool.command()\ndef f() -> None:\n    """Show what is there."""', ["Show what is there."]),
        ('P, Q = re.compile("one or two|three"), "first second third".split()', []),
        ('x = cast("dict[one, two, three]", y)', []),
        ('x = {"two words": "one-word"}', []),
    ],
)
def test_what_is_read_as_a_message(code: str, found: list[str]) -> None:
    assert [each.text for each in messages_of(ROOT / "a.py", code)] == found


def test_a_message_is_cut_where_a_thought_ends() -> None:
    text = "slot 1: it died; the next one starts in 2.5 s. See the log"
    assert Said(ROOT / "a.py", 1, text).sentences() == [
        "slot 1:",
        "it died;",
        "the next one starts in 2.5 s.",
        "See the log",
    ]
