"""What waits for slow readers: in order, bounded for each and for all, and tried again ever more rarely."""

import pytest
import zmq

from pool.serve.outbox import LONGEST_RETRY_S, RETRY_S, Outboxes
from pool.serve.payload import Payload, held_bytes

KIB = (zmq.Frame(bytes(1024)),)
SIZE = held_bytes(KIB)


class Pipes:
    """Clients' pipes: each takes as many messages as it has room for."""

    def __init__(self, **room: int) -> None:
        self.room = {name.encode(): room for name, room in room.items()}
        self.tried = 0

    def take(self, client: bytes, _: Payload) -> bool:
        self.tried += 1
        if not self.room.get(client):
            return False
        self.room[client] -= 1
        return True


def test_who_has_too_many_messages_is_given_up() -> None:
    boxes = Outboxes(3, 1000 * SIZE)
    assert [boxes.add(b"a", KIB) for _ in range(4)] == [[], [], [], [b"a"]]
    assert not boxes
    assert boxes.size_bytes == 0


def test_together_they_hold_no_more_than_one_may_and_the_one_that_is_stuck_goes() -> None:
    """Sixteen clients that never read would otherwise hold sixteen times the bound."""
    boxes = Outboxes(1000, 10 * SIZE)
    for _ in range(4):
        assert boxes.add(b"slow", KIB) == []
    for _ in range(6):
        assert boxes.add(b"stuck", KIB) == []
    assert boxes.flush(Pipes(slow=1).take, 1.0)
    assert boxes.add(b"other", KIB) == []
    assert boxes.add(b"other", KIB) == [b"stuck"], "the others' pipes took something since, or are new"
    assert sorted(boxes.clients()) == [b"other", b"slow"]
    assert boxes.size_bytes == 5 * SIZE


@pytest.mark.parametrize("clients", [2, 16, 100])
def test_the_sum_is_bounded_however_many_do_not_read(clients: int) -> None:
    boxes = Outboxes(1000, 10 * SIZE)
    given_up = set()
    for _ in range(9):
        for number in range(clients):
            given_up.update(boxes.add(b"%d" % number, KIB))
            assert boxes.size_bytes <= 10 * SIZE
    assert given_up


def test_one_answer_may_wait_however_large() -> None:
    boxes = Outboxes(10, SIZE // 2)
    assert boxes.add(b"a", KIB) == []
    assert boxes.add(b"a", KIB) == [b"a"]


def test_pipes_that_take_nothing_are_tried_ever_more_rarely_and_at_once_when_one_moves() -> None:
    boxes = Outboxes(1000, 1000 * SIZE)
    for _ in range(50):
        boxes.add(b"a", KIB)
    full, now, instants = Pipes(), 100.0, []
    for _ in range(8):
        assert not boxes.flush(full.take, now)
        instant = boxes.next_try()
        assert instant is not None
        instants.append(instant - now)
        assert not boxes.flush(full.take, instant - 1e-6), "it is not time"
        now = instant
    assert full.tried == 8
    assert instants == sorted(instants)
    assert instants[-1] == pytest.approx(LONGEST_RETRY_S)
    assert boxes.flush(Pipes(a=1).take, now)
    assert boxes.next_try() == pytest.approx(now + RETRY_S)
    assert boxes.waiting(b"a") == 49


def test_what_waits_leaves_in_order_and_completely() -> None:
    boxes = Outboxes(1000, 1000 * SIZE)
    messages = [(zmq.Frame(b"%d" % number),) for number in range(9)]
    for message in messages:
        boxes.add(b"a", message)
    taken: list[Payload] = []

    def take(_: bytes, frames: Payload) -> bool:
        taken.append(frames)
        return True

    assert boxes.flush(take, 1.0)
    assert taken == messages
    assert not boxes
    assert boxes.size_bytes == 0
    assert boxes.next_try() is None
