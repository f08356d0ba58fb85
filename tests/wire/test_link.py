"""The link: messages and descriptors, queued when the other does not read; nothing that comes in raises by surprise."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from pool.wire.link import SEALS, Link, credentials, sealed_bytes
from pool.wire.specs import BadMessage

Pair = tuple[Link, Link]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.setblocking(False)
    other.setblocking(False)
    links = Link(one), Link(other)
    yield links
    for link in links:
        link.close()


def memory(size: int = 4096, seals: int = SEALS) -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def test_messages_arrive_in_order_with_their_descriptors_though_the_other_reads_late(pair: Pair) -> None:
    one, other = pair
    lent = memory()
    sent = 0
    with suppress(BlockingIOError):
        while True:
            one.send({"number": sent}, lent)
            sent += 1
    os.close(lent)
    received = []
    while len(received) < sent:
        said = other.receive()
        assert said is not None
        message, descriptor = said
        assert sealed_bytes(descriptor) == 4096
        assert not os.get_inheritable(descriptor)
        os.close(descriptor)
        received.append(message["number"])
    assert received == [*range(sent)]


def test_the_end_is_told_from_nothing_to_read(pair: Pair) -> None:
    one, other = pair
    with pytest.raises(BlockingIOError):
        other.receive()
    one.close()
    assert other.receive() is None


@pytest.mark.parametrize("data", [b"\xc1", b"\x93\x01\x02\x03", b"\x80" * 3, b"\xd9" * 100, b"x" * (70 << 10)])
def test_what_is_no_message_is_a_bad_message(pair: Pair, data: bytes) -> None:
    one, other = pair
    one.socket.send(data)
    with pytest.raises(BadMessage):
        other.receive()


def test_several_descriptors_are_refused_and_closed(pair: Pair) -> None:
    one, other = pair
    lent = [memory(), memory()]
    socket.send_fds(one.socket, [b"\x80"], lent)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(BadMessage):
        other.receive()
    assert len(os.listdir("/proc/self/fd")) == before
    for descriptor in lent:
        os.close(descriptor)


def test_memory_that_can_be_cut_is_refused() -> None:
    reader, writer = os.pipe()
    plain = os.memfd_create("plain", os.MFD_ALLOW_SEALING)
    for descriptor in (reader, plain, memory(seals=fcntl.F_SEAL_GROW)):
        with pytest.raises(BadMessage):
            sealed_bytes(descriptor)
        os.close(descriptor)
    os.close(writer)


def test_the_kernel_says_who_is_there(pair: Pair) -> None:
    assert credentials(pair[0].socket) == (os.getpid(), os.getuid(), os.getgid())
