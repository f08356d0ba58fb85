"""Shared memory that the pool lends: a sealed memfd, which has no name and is handed on by its descriptor.

    pool ── descriptor ──► client      writes a job's tensors, reads its answers
      └──── descriptor ──► worker      reads the tensors where they are, writes the answers

Sealed, it can be neither shrunk nor grown: whoever maps it is safe from the SIGBUS of one that was cut. Its client can
write it at any time, so what is decided by its bytes is decided by a copy of them.
"""

import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pool.wire.codec import BadFrame

__all__ = [
    "BadSegment",
    "Grant",
    "MemoryRequest",
    "attach",
    "create",
    "receive_grant",
    "send_grant",
]

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

_grant = struct.Struct("<BQQ")
_request = struct.Struct("<QQ")
_fd = struct.Struct("=i")


class BadSegment(Exception):
    """A descriptor that is not what the pool hands out."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What goes with a descriptor. `size_bytes` 0: there is none, as nothing is lent, or no more of this segment."""

    segment: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """A client asks for a segment of `most_bytes`, or of what is left, but of no fewer than `least_bytes`."""

    least_bytes: int
    most_bytes: int

    def pack(self) -> bytes:
        return _request.pack(self.least_bytes, self.most_bytes)

    @classmethod
    def unpack(cls, record: bytes) -> "MemoryRequest":
        """Raises `BadFrame`."""
        try:
            return cls(*_request.unpack(record))
        except struct.error:
            raise BadFrame(f"a request of {len(record)} bytes") from None


def create(size_bytes: int) -> int:
    """The descriptor of a new segment. Nothing of it takes memory before it is written. Raises `OSError`."""
    fd = os.memfd_create("tf-worker-pool", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size_bytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except OSError:
        os.close(fd)
        raise
    return fd


def attach(fd: int, size_bytes: int) -> mmap.mmap:
    """The memory of a segment; the descriptor may be closed then. Raises `BadSegment` for what could be cut."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
        found = os.fstat(fd).st_size
    except OSError as error:
        raise BadSegment(f"it is not a memory file: {error.strerror}") from None
    if seals & SEALS != SEALS:
        raise BadSegment("it can be shrunk or grown")
    if found != size_bytes:
        raise BadSegment(f"it has {found} bytes, not {size_bytes}")
    try:
        return mmap.mmap(fd, size_bytes)
    except (OSError, ValueError) as error:
        raise BadSegment(f"it cannot be mapped: {error}") from None


def send_grant(link: socket.socket, grant: Grant, fd: int | None) -> None:
    """One record, on a socket that keeps records apart. Raises `OSError`; BlockingIOError where it would wait."""
    record = _grant.pack(fd is not None, grant.segment, grant.size_bytes)
    if fd is None:
        link.send(record, socket.MSG_NOSIGNAL)
    else:
        # Not `send_fds` and `recv_fds`, which throw the flags away that they are given.
        rights = socket.SOL_SOCKET, socket.SCM_RIGHTS, _fd.pack(fd)
        link.sendmsg([record], [rights], socket.MSG_NOSIGNAL)


@contextmanager
def receive_grant(link: socket.socket) -> Iterator[tuple[Grant, int | None] | None]:
    """The next record and its descriptor, which is closed at the end; None when the other side is gone.

    Raises `BadFrame` for what is no grant, and `OSError`.
    """
    record, ancillary, _, _ = link.recvmsg(_grant.size + 1, socket.CMSG_SPACE(_fd.size), socket.MSG_CMSG_CLOEXEC)
    fds = [fd for _, _, octets in ancillary for (fd,) in _fd.iter_unpack(octets[: len(octets) // _fd.size * _fd.size])]
    try:
        if not record:
            yield None
            return
        if len(record) != _grant.size:
            raise BadFrame(f"a grant of {len(record)} bytes")
        carries, segment, size_bytes = _grant.unpack(record)
        if bool(carries) != bool(fds):
            raise BadFrame("a grant without its descriptor")
        yield Grant(segment, size_bytes), (fds[0] if fds else None)
    finally:
        for fd in fds:
            os.close(fd)
