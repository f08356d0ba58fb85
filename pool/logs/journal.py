"""systemd's journal, spoken to in its own protocol, so that each field of an entry can be searched for.

    MESSAGE=slot 0 gpu:0 READY: digits, pid 123
    PRIORITY=6
    TFPOOL_SLOT=0            a line a field; or the name, a line break, the length in 8 bytes, and any bytes at all

One datagram is one entry. https://systemd.io/JOURNAL_NATIVE_PROTOCOL
"""

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from pool.logs.entry import Entry, Field
from pool.logs.lines import priority
from pool.wire.texts import printable

__all__ = ["SOCKET", "Journal", "datagram", "is_journal"]

SOCKET = Path("/run/systemd/journal/socket")
IDENTIFIER = "pool"
FIELD_PREFIX = "TFPOOL_"


def is_journal(fd: int, environ: Mapping[str, str]) -> bool:
    """Whether the descriptor is the one that systemd has connected to the journal, as JOURNAL_STREAM says."""
    about = os.fstat(fd)
    return environ.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}"


class Journal:
    """Nothing here keeps a connection: journald may be restarted at any time."""

    def __init__(self, path: Path) -> None:
        self._address = os.fspath(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)

    def send(self, entry: Entry) -> None:
        """Waits while the journal's queue is full. Raises OSError where nobody listens, or the entry is too large."""
        self._socket.sendto(datagram(entry), self._address)

    def close(self) -> None:
        self._socket.close()


def datagram(entry: Entry) -> bytes:
    fields = {"EVENT": entry.event, **{name.upper(): value for name, value in entry.fields.items()}}
    return b"".join(
        (
            _assigned("MESSAGE", printable(entry.message, keep="\n\t")),
            _assigned("PRIORITY", priority(entry.level)),
            _assigned("SYSLOG_IDENTIFIER", IDENTIFIER),
            *(_assigned(FIELD_PREFIX + name, value) for name, value in fields.items()),
        )
    )


def _assigned(name: str, value: Field) -> bytes:
    """A list is a value of several lines."""
    text = str(value) if isinstance(value, str | int | float) else "\n".join(map(str, value))
    data = text.encode(errors="backslashreplace")
    if b"\n" not in data:
        return f"{name}=".encode() + data + b"\n"
    return f"{name}\n".encode() + len(data).to_bytes(8, "little") + data + b"\n"
