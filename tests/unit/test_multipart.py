"""Frames go to libzmq by the shortest way, whole and in their order."""

from types import FunctionType

import zmq

from pool.wire.multipart import plain_send, send_frames


class Written:
    """A socket in Python."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, int, bool]] = []

    def send(self, data: bytes, flags: int, copy: bool) -> None:
        self.sent.append((data, flags, copy))


def test_a_frame_is_sent_by_the_send_that_is_not_written_in_python() -> None:
    assert isinstance(zmq.Socket.send, FunctionType), "it hands on"
    assert not isinstance(plain_send(zmq.Socket), FunctionType)
    socket = Written()
    send_frames(socket, [b"a", b"b"])
    assert socket.sent == [(b"a", zmq.DONTWAIT | zmq.SNDMORE, False), (b"b", zmq.DONTWAIT, False)]


def test_frames_come_whole_and_in_their_order() -> None:
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
        one.bind("inproc://frames")
        other.connect("inproc://frames")
        frames = [b"route", b"", zmq.Frame(b"header"), memoryview(bytes(1 << 20))]
        send_frames(one, frames)
        assert other.poll(5000)
        assert other.recv_multipart(zmq.DONTWAIT) == [b"route", b"", b"header", bytes(1 << 20)]
