"""An entry as a line, for each kind of reader."""

import json
import logging
import re
from datetime import datetime

from pool.logs.entry import CALLER_CHARS, MESSAGE_CHARS, Entry, about, callers, entry_of
from pool.logs.lines import as_json_line, for_people, prefixed, wants_colour

READY = Entry(1_700_000_000.1234, logging.INFO, "slot_ready", "slot 0 cpu:0 READY", {"slot": 0, "models": ("a", "b c")})
EVIL = Entry(0.0, logging.WARNING, "worker_output", "x\n00:00:00 slot 1\x1b[2J", {"reason": "a\nb\x00"})


def record(**more: object) -> logging.LogRecord:
    return logging.getLogger("pool").makeRecord("pool", logging.INFO, "", 0, "slot %d", (3,), None, **more)  # type: ignore[arg-type]


def test_a_log_call_says_it_twice() -> None:
    entry = entry_of(record(extra=about("slot_ready", slot=3, pid=None)))
    assert (entry.event, entry.message, entry.fields) == ("slot_ready", "slot 3", {"slot": 3})


def test_one_that_has_no_name_or_no_end_is_an_entry_too() -> None:
    assert entry_of(record()).event == "notice"
    endless = logging.LogRecord("pool", logging.INFO, "", 0, "x" * 10 * MESSAGE_CHARS, None, None)
    assert len(entry_of(endless).message) == MESSAGE_CHARS + 1


def test_of_what_somebody_else_says_a_line_has_the_beginning_and_the_length() -> None:
    assert callers("model 'a' is\nnot served") == "model 'a' is not served"
    assert callers("x" * CALLER_CHARS) == "x" * CALLER_CHARS
    assert callers("x" * 60_000) == "x" * CALLER_CHARS + "… (60000 characters)"


def test_no_field_is_without_end() -> None:
    endless = entry_of(record(extra=about("refused", reason="x" * 100_000)))
    assert endless.fields["reason"] == "x" * MESSAGE_CHARS + "…"


def test_a_text_that_is_no_utf8_can_be_written_by_all() -> None:
    odd = record(extra=about("x", path="/\udcff", models=["\ud800", "b"], slots=[1], share=0.5, slot=0))
    odd.msg = "slot \udcff %d"
    entry = entry_of(odd)
    assert entry.message == r"slot \udcff 3"
    assert entry.fields == {"path": r"/\udcff", "models": [r"\ud800", "b"], "slots": [1], "share": 0.5, "slot": 0}
    assert json.loads(as_json_line(entry))["path"].encode() == rb"/\udcff"


def test_for_people() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d INFO    slot 0 cpu:0 READY\n", for_people(READY))
    assert for_people(EVIL)[19:] == " WARNING x\\n00:00:00 slot 1\\x1b[2J\n"
    fields = ' INFO    slot 0 cpu:0 READY · event=slot_ready slot=0 models=["a", "b c"]\n'
    assert for_people(READY, fields=True)[19:] == fields
    told = for_people(EVIL, fields=True)
    assert told.endswith('slot 1\\x1b[2J · event=worker_output reason="a\\nb\\u0000"\n')
    assert re.fullmatch(r"\x1b\[2m[-: \d]{19}\x1b\[0m \x1b\[33mWARNING\x1b\[0m x.*\n", for_people(EVIL, colour=True))


def test_who_wants_no_colour_says_so() -> None:
    assert wants_colour({"TERM": "xterm", "NO_COLOR": ""})
    assert not wants_colour({"TERM": "xterm", "NO_COLOR": "1"})
    assert not wants_colour({"TERM": "dumb"})


def test_for_a_journal_that_reads_lines() -> None:
    assert prefixed(READY) == "<6>slot 0 cpu:0 READY\n"
    assert prefixed(EVIL) == "<4>x\\n00:00:00 slot 1\\x1b[2J\n"
    levels = {logging.CRITICAL: 2, logging.ERROR: 3, logging.DEBUG: 7}
    for level, number in levels.items():
        assert prefixed(Entry(0.0, level, "", "m", {})) == f"<{number}>m\n"


def test_for_programs() -> None:
    read = json.loads(as_json_line(READY))
    assert datetime.fromisoformat(read.pop("time")) == datetime.fromisoformat("2023-11-14T22:13:20.123+00:00")
    assert read == {
        "level": "info",
        "event": "slot_ready",
        "message": "slot 0 cpu:0 READY",
        "slot": 0,
        "models": ["a", "b c"],
    }
    assert json.loads(as_json_line(EVIL))["message"] == EVIL.message


def test_json_is_always_json() -> None:
    odd = {"share": float("inf"), "message": "not the sentence", "text": "\ud800\x1b\u2028", "path": object()}
    line = as_json_line(Entry(0.0, logging.INFO, "e", "the sentence", odd))  # type: ignore[arg-type]
    read = json.loads(line, parse_constant=lambda name: (_ for _ in ()).throw(ValueError(name)))
    assert (read["share"], read["message"], read["text"]) == ("inf", "the sentence", "\ud800\x1b\u2028")
    assert line.isascii()
    assert line.count("\n") == 1


def test_a_traceback_is_a_field_and_for_people_lines_that_cannot_be_events() -> None:
    try:
        raise ValueError("why\x1b")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    entry = entry_of(logging.LogRecord("pool", logging.ERROR, "", 0, "broken", None, info))
    first, *rest = for_people(entry).splitlines()
    assert first.endswith("ERROR   broken")
    assert rest[-1] == "    ValueError: why\\x1b"
    assert all(line.startswith("    ") for line in rest)
    assert all(line.startswith("<3>") for line in prefixed(entry).splitlines())
    assert json.loads(as_json_line(entry))["exception"].endswith("ValueError: why\x1b")
