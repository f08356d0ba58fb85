"""The link: messages and descriptors, queued when the other does not read; nothing that comes in raises by surprise."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from pool.wire.link import Link, sealed_bytes
from pool.wire.specs import BadMessage
from support.raw import memory

Pair = tuple[Link, Link]


@pytest.fixture
def pair() -> Iterator[Pair]:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.setblocking(False)
    other.setblocking(False)
    links = Link(one), Link(other)
    yield links
    for link in links:
        link.socket.close()


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
        assert sealed_bytes(descriptor) == 1 << 20
        assert not os.get_inheritable(descriptor)
        os.close(descriptor)
        received.append(message["number"])
    assert received == [*range(sent)]


@pytest.mark.parametrize("data", [b"\xc1", b"\x93\x01\x02\x03", b"x" * (70 << 10)])
def test_what_is_no_message_is_a_bad_message(pair: Pair, data: bytes) -> None:
    one, other = pair
    one.socket.send(data)
    with pytest.raises(BadMessage):
        other.receive()
