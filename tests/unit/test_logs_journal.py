"""The journal's own protocol, heard by a socket like the journal's."""

import logging
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.logs.entry import Entry
from pool.logs.journal import Journal, datagram, is_journal

ENTRY = Entry(0.0, logging.ERROR, "slot_fatal", "slot 1 gpu:0 FATAL", {"slot": 1, "last_output": ("one", "two")})


def parsed(message: bytes) -> dict[str, str]:
    """As the protocol's description says, strictly."""
    fields: dict[str, str] = {}
    while message:
        head, _, rest = message.partition(b"\n")
        name, assigned, value = head.partition(b"=")
        if not assigned:
            size = int.from_bytes(rest[:8], "little")
            value, rest = rest[8 : 8 + size], rest[8 + size :]
            assert len(value) == size
            assert rest[:1] == b"\n"
            rest = rest[1:]
        fields[name.decode()] = value.decode()
        message = rest
    return fields


def test_each_field_is_an_assignment() -> None:
    assert parsed(datagram(ENTRY)) == {
        "MESSAGE": "slot 1 gpu:0 FATAL",
        "PRIORITY": "3",
        "SYSLOG_IDENTIFIER": "pool",
        "TFPOOL_EVENT": "slot_fatal",
        "TFPOOL_SLOT": "1",
        "TFPOOL_LAST_OUTPUT": "one\ntwo",
    }
    assert b"TFPOOL_LAST_OUTPUT\n\x07\0\0\0\0\0\0\0one\ntwo\n" in datagram(ENTRY)


@given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
def test_nothing_that_is_said_becomes_another_field(message: str, reason: str) -> None:
    fields = parsed(datagram(Entry(0.0, logging.INFO, "e", message, {"reason": reason})))
    assert fields.keys() == {"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "TFPOOL_EVENT", "TFPOOL_REASON"}
    assert fields["TFPOOL_REASON"] == reason.encode(errors="backslashreplace").decode()
    assert "\x1b" not in fields["MESSAGE"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """pytest's own folders are too deep for the path of a socket."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_an_entry_is_a_datagram_and_a_journal_that_comes_back_is_found(folder: Path) -> None:
    path = folder / "socket"
    with closing(Journal(path)) as journal:
        with pytest.raises(OSError, match="No such file"):
            journal.send(ENTRY)
        for _ in range(2):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
                listener.bind(os.fspath(path))
                journal.send(ENTRY)
                assert parsed(listener.recv(65536))["TFPOOL_SLOT"] == "1"
            with pytest.raises(OSError, match="refused"):
                journal.send(ENTRY)
            path.unlink()


def test_only_the_stream_that_systemd_named_is_the_journal(folder: Path) -> None:
    with (folder / "log").open("w") as file:
        about = os.fstat(file.fileno())
        assert is_journal(file.fileno(), {"JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"})
        for other in ("", f"{about.st_dev}:{about.st_ino + 1}", "0:0", "nonsense"):
            assert not is_journal(file.fileno(), {"JOURNAL_STREAM": other})
        assert not is_journal(file.fileno(), {})
