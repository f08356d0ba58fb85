"""The thread that writes: in order, bounded, and honest about what it dropped."""

import logging
import threading
from collections.abc import Iterator

import pytest

from pool.logs.entry import Entry
from pool.logs.writer import Writer
from support.processes import eventually

LONG_S = 20.0


class Reader:
    """A way that takes entries only while its gate is open, after so many failures."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.gate = threading.Event()
        self.waited_for = threading.Event()
        self.failures = 0

    def __call__(self, entry: Entry) -> None:
        self.waited_for.set()
        assert self.gate.wait(LONG_S)
        if self.failures:
            self.failures -= 1
            raise OSError("no space left")
        self.read.append(entry.message)


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.gate.set()


def say(writer: Writer, *messages: object) -> None:
    for message in messages:
        writer.put(Entry(0.0, logging.INFO, "e", str(message), {}))


def stuck(reader: Reader, **bounds: int) -> Writer:
    """A writer whose thread has an entry in hand and waits."""
    writer = Writer([reader], None, **bounds)
    say(writer, "first")
    assert reader.waited_for.wait(LONG_S)
    return writer


def test_all_is_written_in_order_before_it_is_closed(reader: Reader) -> None:
    reader.gate.set()
    writer = Writer([reader])
    say(writer, *range(3000))
    assert writer.close(LONG_S)
    assert reader.read == [str(number) for number in range(3000)]
    say(writer, "late")
    assert reader.read[-1] == "2999"


def test_what_waits_is_bounded_in_number_and_what_is_dropped_is_told_in_its_place(reader: Reader) -> None:
    writer = stuck(reader, most_entries=3)
    say(writer, *range(10))
    reader.gate.set()
    assert writer.close(LONG_S)
    assert reader.read == ["first", "0", "1", "2", "… 7 lines were dropped because nothing read the log"]


def test_it_takes_lines_again_when_it_has_told(reader: Reader) -> None:
    writer = stuck(reader, most_entries=1)
    say(writer, "kept", "dropped")
    reader.gate.set()
    eventually(lambda: len(reader.read) == 3)
    say(writer, "after")
    assert writer.close(LONG_S)
    assert reader.read == ["first", "kept", "… 1 line was dropped because nothing read the log", "after"]


def test_what_waits_is_bounded_in_size(reader: Reader) -> None:
    writer = stuck(reader, most_chars=1000)
    say(writer, *("x" * 400 for _ in range(10)))
    reader.gate.set()
    assert writer.close(LONG_S)
    assert len(reader.read) == 1 + 3 + 1


def test_closing_waits_no_longer_than_it_may(reader: Reader) -> None:
    writer = stuck(reader)
    assert not writer.close(0.05)
    reader.gate.set()
    assert writer.close(LONG_S)


def test_what_nobody_took_is_told_when_somebody_does(reader: Reader) -> None:
    reader.failures = 2
    reader.gate.set()
    writer = Writer([reader])
    say(writer, 1, 2, 3)
    assert writer.close(LONG_S)
    assert reader.read == ["… 2 lines were dropped because nothing read the log", "3"]


def test_the_next_way_takes_what_the_first_does_not(reader: Reader) -> None:
    def nobody(_entry: Entry) -> None:
        raise ConnectionRefusedError

    reader.gate.set()
    writer = Writer([nobody, reader])
    say(writer, "said")
    assert writer.close(LONG_S)
    assert reader.read == ["said"]
