"""The link: messages and descriptors, queued when the other does not read."""

import os
import socket
from contextlib import suppress

from pool.wire.link import Link, sealed_bytes
from support.raw import memory


def test_messages_arrive_in_order_with_their_descriptors_though_the_other_reads_late() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        one.setblocking(False)
        lent, sent = memory(), 0
        with suppress(BlockingIOError):
            while True:
                Link(one).send({"number": sent}, lent)
                sent += 1
        os.close(lent)
        received = []
        while len(received) < sent:
            said = Link(other).receive()
            assert said is not None
            message, descriptor = said
            assert sealed_bytes(descriptor) == 1 << 20
            assert not os.get_inheritable(descriptor)
            os.close(descriptor)
            received.append(message["number"])
        assert received == [*range(sent)]
