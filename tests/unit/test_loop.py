"""A turn visits what is ready and what is due, and nothing else, however much is registered."""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import zmq

from pool.clock.alarms import Alarms
from pool.loop.doorbell import Doorbell
from pool.loop.loop import LONGEST_WAIT_S, Loop
from pool.loop.watch import READY_A_TURN, Source, Watch


class Script(Watch):
    """Nothing is real: a wait lets the time pass, or finds what the test has made ready."""

    def __init__(self) -> None:
        self.now = 100.0
        self.sources: set[Source] = set()
        self.ready: list[Source] = []
        self.waits: list[float] = []

    def close(self) -> None:
        assert not self.sources

    def add(self, source: Source) -> None:
        self.sources.add(source)

    def remove(self, source: Source) -> None:
        self.sources.remove(source)

    def wait(self, seconds: float) -> list[Source]:
        self.waits.append(seconds)
        ready = [source for source in self.ready if source in self.sources]
        self.now += 0.0 if ready else seconds
        return ready


class Bench:
    """`said`: who was called, in order."""

    def __init__(self) -> None:
        self.script = Script()
        self.loop = Loop(self.script, Alarms(lambda: self.script.now))
        self.said: list[str] = []

    def says(self, word: str, then: Callable[[], None] = lambda: None) -> Callable[[], None]:
        def call() -> None:
            self.said.append(word)
            then()

        return call

    def turn(self) -> list[str]:
        self.said.clear()
        self.loop.turn()
        return list(self.said)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_turn_without_anything_waits_and_ends(bench: Bench) -> None:
    bench.loop.register(7, bench.says("7"))
    assert bench.turn() == []
    assert bench.script.waits == [LONGEST_WAIT_S], "no wait without an end"


def test_a_turn_waits_no_longer_than_until_the_next_alarm(bench: Bench) -> None:
    bench.loop.alarm(bench.says("late")).by(109.0)
    bench.loop.alarm(bench.says("early")).by(102.5)
    assert bench.turn() == ["early"]
    assert bench.turn() == ["late"]
    assert bench.script.waits == [2.5, 6.5]


def test_each_source_that_is_ready_is_visited_once_and_then_what_is_due(bench: Bench) -> None:
    """However much is still to be read at one of them."""
    asked = bench.loop.alarm(bench.says("asked"))
    due = bench.loop.alarm(bench.says("due"))
    for number in (3, 4, 5):
        bench.loop.register(number, bench.says(f"{number}", asked.soon))
    bench.script.ready = [4, 3]
    for _ in range(3):
        due.by(bench.script.now)
        assert bench.turn() == ["4", "3", "asked", "due"]
    bench.script.ready = [5]
    assert bench.turn() == ["5", "asked"]
    assert bench.script.waits[-1] == LONGEST_WAIT_S


def test_what_follows_comes_once_between_what_was_ready_and_what_is_due(bench: Bench) -> None:
    loop = Loop(bench.script, Alarms(lambda: bench.script.now), bench.says("follows"))
    asked = loop.alarm(bench.says("asked"))
    for number in (3, 4):
        loop.register(number, bench.says(f"{number}", asked.soon))
    bench.script.ready = [4, 3]
    loop.turn()
    assert bench.said == ["4", "3", "follows", "asked"]


def test_what_becomes_due_while_a_source_is_served_does_not_wait(bench: Bench) -> None:
    def late() -> None:
        bench.script.now += 2.0

    bench.loop.alarm(bench.says("due")).by(bench.script.now + 1.0)
    bench.loop.register(3, bench.says("3", late))
    bench.script.ready = [3]
    assert bench.turn() == ["3"]
    assert bench.turn() == ["3", "due"], "nor until nothing is ready"
    assert bench.script.waits == [1.0, 0.0]


def test_what_an_alarm_asks_for_does_not_wait(bench: Bench) -> None:
    again = bench.loop.alarm(bench.says("again"))
    bench.loop.alarm(bench.says("asks", again.soon)).soon()
    assert bench.turn() == ["asks"]
    assert bench.turn() == ["again"]
    assert bench.script.waits == [0.0, 0.0]


def test_a_source_that_goes_in_a_turn_is_not_visited_in_it(bench: Bench) -> None:
    bench.loop.register(3, bench.says("3", lambda: bench.loop.unregister(4)))
    bench.loop.register(4, bench.says("4"))
    bench.script.ready = [3, 4]
    assert bench.turn() == ["3"]
    assert bench.script.sources == {3}
    assert not bench.loop.is_registered(4)
    assert bench.turn() == ["3"], "and what is not registered may go once more"


def test_who_has_the_number_of_one_that_went_is_not_taken_for_it(bench: Bench) -> None:
    """The kernel gives the number of a closed descriptor to the next one that is opened."""

    def replace() -> None:
        if bench.loop.is_registered(4):
            bench.loop.unregister(4)
            bench.loop.unregister(3)
            bench.loop.register(4, bench.says("new 4"))

    bench.loop.register(3, bench.says("3", replace))
    bench.loop.register(4, bench.says("old 4"))
    bench.script.ready = [3, 4]
    assert bench.turn() == ["3"]
    assert bench.turn() == ["new 4"], "it is as good as any other afterwards"
    bench.loop.unregister(4)
    bench.loop.alarm(lambda: bench.loop.register(4, bench.says("newest 4"))).soon()
    assert bench.turn() == []
    assert bench.turn() == ["newest 4"]


def test_a_source_that_comes_in_a_turn_is_visited_from_the_next_on(bench: Bench) -> None:
    def come() -> None:
        if not bench.loop.is_registered(4):
            bench.loop.register(4, bench.says("4"))

    bench.loop.register(3, bench.says("3", come))
    bench.script.ready = [3, 4]
    assert bench.turn() == ["3"]
    assert bench.turn() == ["3", "4"]


def test_nobody_has_two_handlers(bench: Bench) -> None:
    bench.loop.register(3, bench.says("3"))
    with pytest.raises(AssertionError):
        bench.loop.register(3, bench.says("3"))


# --- the wait itself


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    watch.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        os.close(fd)


def test_a_descriptor_is_ready_as_long_as_there_is_something_to_read(watch: Watch, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    watch.add(reader)
    assert watch.wait(0.0) == []
    os.write(writer, b"xx")
    assert watch.wait(LONGEST_WAIT_S) == watch.wait(LONGEST_WAIT_S) == [reader]
    os.read(reader, 2)
    assert watch.wait(0.0) == []
    os.write(writer, b"x")
    watch.remove(reader)
    assert watch.wait(0.0) == []


def test_one_whose_other_end_is_closed_is_ready(watch: Watch) -> None:
    reader, writer = os.pipe()
    watch.add(reader)
    os.close(writer)
    assert watch.wait(LONGEST_WAIT_S) == [reader]
    watch.remove(reader)
    os.close(reader)


def test_of_many_that_are_ready_each_is_told_in_its_turn(watch: Watch) -> None:
    pipes = [os.pipe() for _ in range(READY_A_TURN + 9)]
    for reader, writer in pipes:
        watch.add(reader)
        os.write(writer, b"x")
    first = watch.wait(LONGEST_WAIT_S)
    assert len(first) == READY_A_TURN
    assert {*first, *watch.wait(LONGEST_WAIT_S)} == {reader for reader, _ in pipes}
    for reader, writer in pipes:
        watch.remove(reader)
        os.close(reader)
        os.close(writer)


def test_a_socket_is_ready_as_long_as_messages_are_left(watch: Watch) -> None:
    """ZeroMQ tells at its descriptor of what comes, once: what a burst leaves there is to be found without that."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
        router.linger = dealer.linger = 0
        router.bind("inproc://router")
        dealer.connect("inproc://router")
        watch.add(router)
        for number in range(3):
            dealer.send(b"%d" % number)
        for number in range(3):
            assert watch.wait(LONGEST_WAIT_S) == [router]
            who, what = router.recv_multipart(zmq.NOBLOCK)
            assert what == b"%d" % number
            router.send_multipart([who, b"answer"])  # it reads what its descriptor would have told
        assert watch.wait(0.0) == []


def test_a_wait_is_over_when_its_time_has_come(watch: Watch) -> None:
    """Never before: who is due then would be found not to be, and the loop turn again."""

    for seconds in (1e-9, 0.0004, 0.0011, 0.0029):
        began = time.monotonic()
        assert watch.wait(seconds) == []
        assert time.monotonic() - began >= seconds


def turns(count: int, handler: Callable[[], None]) -> int:
    """Calls, Python's and C's, of a turn in which one source of so many is ready and nothing is due."""
    loop = Loop(Watch(), Alarms())
    pipes = [os.pipe() for _ in range(count)]
    alarms = [loop.alarm(lambda: None) for _ in range(count)]
    for number, (reader, _) in enumerate(pipes):
        loop.register(reader, handler)
        alarms[number].by(1e12 + number)
    os.write(pipes[-1][1], b"x")
    calls = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    loop.turn()
    before = sys.getprofile()
    gc.disable()  # what other tests left behind would end, and be counted, in the midst of it
    sys.setprofile(note)
    loop.turn()
    sys.setprofile(before)
    gc.enable()
    for reader, writer in pipes:
        loop.unregister(reader)
        os.close(reader)
        os.close(writer)
    loop.close()
    return calls


def test_a_turn_costs_the_same_however_much_is_registered() -> None:
    visits = 0

    def visit() -> None:
        nonlocal visits
        visits += 1

    few, many = turns(1, visit), turns(200, visit)
    assert visits == 4
    assert few == many <= 14


# --- other threads


def test_another_thread_wakes_the_loop_and_what_it_left_is_seen() -> None:
    bell, left = Doorbell(), list[int]()
    loop = Loop(Watch(), Alarms())
    seen: list[int] = []

    def hear() -> None:
        bell.hush()
        while left:
            seen.append(left.pop(0))

    loop.register(bell.fd, hear)

    def leave() -> None:
        for number in range(100):
            left.append(number)
            bell.ring()

    thread = threading.Thread(target=leave)
    thread.start()
    while len(seen) < 100:
        loop.turn()
    thread.join()
    bell.hush()
    assert seen == list(range(100))
    loop.unregister(bell.fd)
    loop.close()


def test_a_bell_blocks_nobody(watch: Watch) -> None:
    bell = Doorbell()
    bell.hush()
    os.eventfd_write(bell.fd, (1 << 64) - 2)  # as much as it can count
    bell.ring()
    watch.add(bell.fd)
    assert watch.wait(LONGEST_WAIT_S) == [bell.fd]
    bell.hush()
    assert watch.wait(0.0) == []
    watch.remove(bell.fd)
