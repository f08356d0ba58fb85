"""From what each slot has to what it should have, one slot after another, whatever the cause.

    begin ─► slot 0: its welcome is the new one, RestartAsked ─ READY ─► slot 1: … ─► all have it
                                                              ├ its device is gone ─► slot 1: …
                                                              ├ its replacement failed ─► its former welcome; the end
                                                              ├ died ─► its former welcome, RestartAsked; the end
                                                              └ either, `alone` ─► its former welcome; slot 1: …

A slot whose turn has not come keeps its former settings, also when its worker dies meanwhile.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from pool.core.actions import SlotChanged, WorkerChanged
from pool.core.events import Death, RestartAsked, SlotPlanned
from pool.core.fleet import Fleet, SlotState
from pool.logs import about
from pool.plan.world import Failure
from pool.wire.worker_messages import Welcome

__all__ = ["Refused", "Rollout", "settings_of"]

log = logging.getLogger("pool")


@dataclass(frozen=True, slots=True)
class _Turn:
    """The slot whose new worker is awaited; `former` is what it goes back to where that does not come up."""

    slot: int
    incarnation: int
    former: Welcome


@dataclass(frozen=True, slots=True)
class Refused:
    """A slot did not come up as it was `told`. `former`: as it was; `death`: of its worker.

    `alone`: what this slot alone is to be without, so that the others need not go back with it.
    """

    slot: int
    former: Welcome
    told: Welcome
    death: Death | None = None
    alone: Failure | None = None


class Rollout:
    """Used from the pool's loop. Between two of them it only keeps what each slot's workers are told."""

    def __init__(
        self,
        fleet: Fleet,
        welcomes: Sequence[Welcome],
        is_lost: Callable[[int], bool] = lambda slot: False,  # noqa: ARG005
        unfinished: Callable[[Collection[str]], bool] = lambda _: False,
        alone: Callable[[Refused], Failure | None] = lambda _: None,
    ) -> None:
        """`is_lost`: whether the slot's device is gone: it has no turn, and the new settings if it ever comes up.

        `unfinished`: whether jobs of these models are waited for before a slot loses them. `alone`: see `Refused`.
        """
        self._unfinished = unfinished
        self._alone = alone
        self._fleet = fleet
        self._is_lost = is_lost
        self._given = list(welcomes)
        self._wanted = list(welcomes)
        self._left: list[int] = []
        self._turn: _Turn | None = None
        self._overtaken: tuple[_Turn, Welcome] | None = None  # by another rollout, and what its worker was told
        self.again: list[int] = []
        """Slots that are about to start again, outside their turn: their last workers were told something else."""
        self._failure = ""
        self._refused: Refused | None = None

    def welcome(self, slot: int) -> Welcome:
        """What the next worker of the slot is told."""
        return self._given[slot]

    def begin(self, welcomes: Sequence[Welcome], *, first: Collection[int] = (), back: bool = False) -> list[int]:
        """From now on these are wanted, by slot; returns the slots that need a new worker for it.

        `first`: slots that come before others that gain a model. `back`: nothing new is wanted, so what the last
        rollout failed at is still to be told to people.
        """
        self._wanted = list(welcomes)
        if not back:
            self._failure = ""
        slots, turn, self._turn = self._fleet.slots, self._turn, None
        self._left = [
            number
            for number, (given, wanted) in enumerate(zip(self._given, self._wanted, strict=True))
            if (given.models or wanted.models)
            and settings_of(given) != settings_of(wanted)
            and not self._is_lost(number)
        ]
        for number, wanted in enumerate(self._wanted):
            if number not in self._left:
                self._given[number] = wanted
        # A slot that does not serve anyway may be broken for another reason: it is not to end the rollout at its start.
        # A model that moves comes to its new slot before it leaves the former one.
        gains = [bool(_names(wanted) - _names(given)) for given, wanted in zip(self._given, self._wanted, strict=True)]
        self._left.sort(
            key=lambda number: (slots[number].state is SlotState.FATAL, not gains[number], number not in first)
        )
        if turn is not None and turn.slot in self._left:
            # It is not up yet: nobody else's turn before it is, and what it was to have has not served.
            self._overtaken = turn, self._given[turn.slot]
            self._given[turn.slot] = turn.former
            self._left.remove(turn.slot)
            self._left.insert(0, turn.slot)
        elif turn is not None and not self._is_lost(turn.slot):
            self._turn = turn
        return sorted(self._left)

    def at_once(self, slots: Collection[int]) -> None:
        """These serve nothing yet, so they have no turn to wait for, and nothing to go back to."""
        for slot in set(slots) & set(self._left):
            self._left.remove(slot)
            self._given[slot] = self._wanted[slot]
            if slot not in self.again:
                self.again.append(slot)

    def changed(self, change: SlotChanged | WorkerChanged) -> None:
        """A slot is in another state, or its replacement has failed."""
        if isinstance(change, SlotChanged) and change.state is SlotState.READY:
            self._came_up(change.slot, change.incarnation)
        turn = self._turn
        if turn is None or change.slot != turn.slot:
            return
        is_new = change.incarnation >= turn.incarnation
        if self._is_lost(turn.slot):
            self._turn = None  # the settings are not to blame, so the others get theirs
        elif isinstance(change, WorkerChanged):
            if is_new:
                if self._fleet.slots[turn.slot].worker.incarnation > change.incarnation:
                    # Who sat there died meanwhile, and the next one was told the new settings.
                    self.again.append(turn.slot)
                self._fail(turn, change)
        elif change.state is SlotState.STOPPED or (change.state is SlotState.READY and is_new):
            self._turn = None  # one that was drained has the new settings with its next worker
            if not self._left:
                log.info("every slot has the new settings", extra=about("rolling_update_done"))
        elif change.state is SlotState.FATAL or (change.state is SlotState.BACKOFF and is_new):
            self.again.append(turn.slot)
            self._fail(turn, change)

    def _came_up(self, slot: int, incarnation: int) -> None:
        """Where another rollout has overtaken the worker, what that was told is what the slot has now all the same."""
        if self._overtaken is None or (slot, incarnation) != (self._overtaken[0].slot, self._overtaken[0].incarnation):
            return
        (_, told), self._overtaken = self._overtaken, None
        if self._turn is not None and self._turn.slot == slot:
            self._turn = replace(self._turn, former=told)
        elif slot in self._left:
            self._given[slot] = told
        elif settings_of(told) != settings_of(self._given[slot]):
            self.again.append(slot)

    def _fail(self, turn: _Turn, change: SlotChanged | WorkerChanged) -> None:
        refused = Refused(turn.slot, turn.former, self._given[turn.slot], change.death)
        self._refused = replace(refused, alone=self._alone(refused))
        self._given[turn.slot] = turn.former
        self._turn = None
        if self._refused.alone is not None:
            return
        left = f"slot{'s' * (len(self._left) > 1)} {', '.join(map(str, sorted(self._left)))}"
        kept = f", which stay in {left}" if self._left else ""
        back = f"did not start with the new settings and returns to the former ones{kept}"
        self._failure = f"slot {turn.slot} {back}: {change.reason}"
        log.error("%s", self._failure, extra=about("rolling_update_failed", slot=turn.slot, reason=change.reason))
        self._left = []

    def take_refused(self) -> Refused | None:
        """With what a slot did not come up, once."""
        refused, self._refused = self._refused, None
        return refused

    @property
    def is_under_way(self) -> bool:
        """Whether a slot is still to have the new settings, or its former ones again; or it is to be decided which."""
        return bool(self.again or self._left) or self._turn is not None or self._refused is not None

    def plans(self) -> Iterator[SlotPlanned]:
        """Which models slots are to have; the core is to be told before it welcomes another worker."""
        for slot, welcome in zip(self._fleet.slots, self._given, strict=True):
            if {*slot.planned} != _names(welcome):
                yield SlotPlanned(slot.number, tuple(model.name for model in welcome.models))

    def due(self) -> bool:
        """Whether `tend` has something to do."""
        return bool(self.again) or (self.awaits_jobs and not self._waits())

    @property
    def awaits_jobs(self) -> bool:
        """Whether `tend` is to be called when jobs have ended, as those may be what a slot waits for."""
        return self._turn is None and bool(self._left)

    def _waits(self) -> bool:
        slot = self._left[0]
        return self._unfinished(_names(self._given[slot]) - _names(self._wanted[slot]))

    def tend(self) -> Iterator[RestartAsked | SlotPlanned]:
        """What the core is to be told. REQUIRES that it is told each before the next is asked for."""
        yield from self.plans()
        while self.again:
            slot = self.again.pop(0)
            drained = self._fleet.slots[slot].state is SlotState.STOPPED
            if not drained and self._fleet.replacements.cannot_restart(slot) is None:
                yield RestartAsked(slot)
        while self.awaits_jobs and not self._waits():
            slot = self._left.pop(0)
            former, self._given[slot] = self._given[slot], self._wanted[slot]
            drained = self._fleet.slots[slot].state is SlotState.STOPPED and bool(former.models)
            yield from self.plans()
            if not drained and self._given[slot].models and self._fleet.replacements.cannot_restart(slot) is None:
                self._turn = _Turn(slot, self._fleet.slots[slot].named + 1, former)
                text = "slot %d gets a new worker for the new settings"
                log.info(text, slot, extra=about("rolling_update_slot", slot=slot))
                yield RestartAsked(slot, sparing=True)

    @property
    def left(self) -> list[int]:
        """The slots that are still to have the new settings, the one whose turn it is among them."""
        return sorted([*self._left, *([] if self._turn is None else [self._turn.slot])])

    def status(self) -> dict[str, object]:
        """For people: which slots are still to have the new settings, and why they will not."""
        return {"left": self.left, "failure": self._failure}


def settings_of(welcome: Welcome) -> Welcome:
    """The order in which a worker loads its models is no setting, and what is warm stays warm."""
    models = [replace(model, batch_sizes=()) for model in welcome.models]
    return replace(welcome, models=tuple(sorted(models, key=lambda model: model.name)))


def _names(welcome: Welcome) -> frozenset[str]:
    return frozenset(model.name for model in welcome.models)
