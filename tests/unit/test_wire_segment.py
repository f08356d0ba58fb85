"""What is mapped can be neither cut nor grown, and descriptors go where they belong and nowhere else."""

import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Iterator

import pytest

from pool.wire.codec import BadFrame
from pool.wire.segment import SEALS, BadSegment, Grant, MemoryRequest, attach, create, receive_grant, send_grant

SIZE = 4 * mmap.PAGESIZE


@pytest.fixture
def link() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_what_is_written_by_one_is_read_by_the_other() -> None:
    fd = create(SIZE)
    first, second = attach(fd, SIZE), attach(fd, SIZE)
    os.close(fd)
    first[10:15] = b"hello"
    assert second[10:15] == b"hello"


def test_a_segment_can_be_neither_cut_nor_grown_nor_unsealed() -> None:
    fd = create(SIZE)
    for size in (0, SIZE - 1, SIZE + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, size)
    with pytest.raises(PermissionError):
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    assert not os.get_inheritable(fd)
    os.close(fd)


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_GROW, SEALS & ~fcntl.F_SEAL_SHRINK])
def test_what_could_be_cut_is_not_mapped(seals: int) -> None:
    fd = os.memfd_create("a test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SIZE)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    with pytest.raises(BadSegment, match="it can be shrunk or grown"):
        attach(fd, SIZE)
    os.close(fd)


def test_what_is_of_another_size_or_no_memory_is_not_mapped() -> None:
    fd = create(SIZE)
    with pytest.raises(BadSegment, match=f"it has {SIZE} bytes, not {2 * SIZE}"):
        attach(fd, 2 * SIZE)
    os.close(fd)
    reader, writer = os.pipe()
    with pytest.raises(BadSegment, match="it is not a memory file"):
        attach(reader, SIZE)
    os.close(reader)
    os.close(writer)
    with pytest.raises(BadSegment, match="it is not a memory file"):
        attach(reader, SIZE)
    empty = create(0)
    with pytest.raises(BadSegment, match="it cannot be mapped"):
        attach(empty, 0)
    os.close(empty)


def test_a_grant_carries_its_descriptor_which_is_closed_at_the_end(link: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = link
    fd = create(SIZE)
    send_grant(ours, Grant(7, SIZE), fd)
    os.close(fd)
    before = descriptors()
    with receive_grant(theirs) as received:
        assert received is not None
        grant, got = received
        assert grant == Grant(7, SIZE)
        assert got is not None
        assert not os.get_inheritable(got)
        attach(got, SIZE).close()
    assert descriptors() == before


def test_a_grant_of_nothing_and_the_end(link: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = link
    send_grant(ours, Grant(7, 0), None)
    with receive_grant(theirs) as received:
        assert received == (Grant(7, 0), None)
    ours.close()
    with receive_grant(theirs) as received:
        assert received is None


@pytest.mark.parametrize(
    ("record", "carries", "said"),
    [
        (b"x", False, "a grant of 1 bytes"),
        (bytes(100), False, "a grant of 18 bytes"),
        (struct.pack("<BQQ", 1, 1, SIZE), False, "a grant without its descriptor"),
        (struct.pack("<BQQ", 0, 1, SIZE), True, "a grant without its descriptor"),
        (b"x", True, "a grant of 1 bytes"),
    ],
)
def test_what_is_no_grant_leaves_no_descriptor(
    link: tuple[socket.socket, socket.socket], record: bytes, carries: bool, said: str
) -> None:
    ours, theirs = link
    fd = create(SIZE)
    socket.send_fds(ours, [record], [fd] if carries else [])
    before = descriptors()
    with pytest.raises(BadFrame, match=said), receive_grant(theirs):
        pass
    assert descriptors() == before
    os.close(fd)


def test_wishes() -> None:
    assert MemoryRequest.unpack(MemoryRequest(1, 2**63).pack()) == MemoryRequest(1, 2**63)
    for record in (b"", bytes(15), bytes(17)):
        with pytest.raises(BadFrame, match=f"a request of {len(record)} bytes"):
            MemoryRequest.unpack(record)
