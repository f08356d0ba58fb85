"""What others have written, before it comes to a terminal."""

import pytest

from pool.wire.texts import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ünïcödé, 日本 …", "plain, ünïcödé, 日本 …"),
        ("a\ttab", "a\ttab"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[2Jcleared\x07", r"\x1b[2Jcleared\x07"),
        ("first\n12:00:00 slot 0 FATAL", r"first\n12:00:00 slot 0 FATAL"),
        ("over\rwritten", r"over\rwritten"),
        ("\x9b31m \u2028 \u202e \ud800", r"\x9b31m \u2028 \u202e \ud800"),
    ],
)
def test_nothing_is_left_that_a_terminal_obeys(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_line_breaks_are_kept_where_they_are_wanted() -> None:
    assert printable("one\ntwo\x1b", keep="\n") == "one\ntwo\\x1b"
