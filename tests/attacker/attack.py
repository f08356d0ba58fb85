"""Attackers that play one scene after the other. Which, and what is in it, is the seed's to say, not the clock's."""

import contextlib
import random
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import zmq

from attacker import calls, doors, greed, memory, scenes, zmtp
from attacker.target import Stage

__all__ = ["SCENES", "Attack", "play"]

ATTACKERS = 4
END_S = 240.0  # the longest that a scene may take: it waits for what it asserts

SCENES: Mapping[Callable[[random.Random, Stage], int], int] = {
    scenes.working: 8,
    scenes.babbling: 5,
    scenes.mangling: 3,
    scenes.asking: 3,
    calls.registering: 3,
    memory.borrowing: 5,
    memory.strangers: 2,
    memory.crowded: 1,
    greed.flooding: 1,
    greed.hoarding: 1,
    greed.borrowing_all: 1,
    doors.naming: 2,
    doors.storming: 2,
    doors.at_the_workers_door: 2,
    zmtp.noise: 6,
}


def play(seed: str, number: str, stage: Stage) -> tuple[str, int]:
    """The scene of this number: its name, and how many messages it has sent. Raises what it finds."""
    rng = random.Random(f"{seed}/{number}")
    scene = _scene(rng, *map(int, number.split(".")))
    try:
        return scene.__name__, scene(rng, stage)
    except Exception as error:
        said = "".join(traceback.format_exception(error))
        raise AssertionError(
            f"seed {seed}, scene {number}, {scene.__name__}: {error!r:.3000}\n{said[-3000:]}"
        ) from error


def _scene(rng: random.Random, round_: int, attacker: int, turn: int) -> Callable[[random.Random, Stage], int]:
    """The attackers begin with all there are, in turn; then chance decides."""
    first = attacker + ATTACKERS * (turn - 1)
    if round_ == 1 and first < len(SCENES):
        return [*SCENES][first]
    return rng.choices([*SCENES], [*SCENES.values()])[0]


class Attack:
    """`played`: how often each scene was; `sent`: messages. Used from one thread, but for its attackers."""

    def __init__(self, seed: str, stage: Stage) -> None:
        self.played: Counter[str] = Counter()
        self.sent = 0
        self._seed = seed
        self._stage = stage
        self._rounds = 0
        self._over = threading.Event()
        self._failed: list[AssertionError] = []

    @contextlib.contextmanager
    def round(self) -> Iterator[None]:
        """All attackers are at it. Raises the first thing that one of them has found."""
        self._over.clear()
        self._rounds += 1
        threads = [threading.Thread(target=self._main, args=(each,), daemon=True) for each in range(ATTACKERS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in threads:
                thread.join(END_S)
        self.check()
        assert not any(thread.is_alive() for thread in threads), f"a scene has not ended within {END_S:g} s"

    def check(self) -> None:
        if self._failed:
            raise self._failed[0]

    def _main(self, attacker: int) -> None:
        with zmq.Context() as context:
            stage = replace(self._stage, context=context)
            turn = 0
            while not self._over.is_set() and not self._failed:
                turn += 1
                try:
                    name, sent = play(self._seed, f"{self._rounds}.{attacker}.{turn}", stage)
                except AssertionError as error:
                    self._failed.append(error)
                    return
                self.played[name] += 1
                self.sent += sent
