"""Keeps the world, and closes the difference between what should run where and what does.

settings, models by hand ─► wishes ─┐
versions on the disk ─────► watch ──┼─► another world ─► plan ─► rollout: a new worker in each slot that it concerns
devices gone, or back ──────────────┤                              │
what a slot did not come up with ───┴─◄────────────────────────────┘
"""

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pool.clock import Alarm
from pool.core import Machine
from pool.core.actions import SlotChanged, WorkerChanged
from pool.core.events import Death, Event, ModelsAwaited, PolicyChanged, WorkerExited
from pool.core.fleet import Role, SlotState, WorkerState
from pool.errors import InvalidConfig
from pool.logs import about, callers
from pool.loop import Doorbell
from pool.plan.plan import Plan
from pool.plan.planning import plan as planned
from pool.plan.rollout import Refused, Rollout
from pool.plan.version_watch import VersionWatch
from pool.plan.wishes import NO_FILE, RELOAD, Granted, Outcome, Source, Wishes, wish_of
from pool.plan.world import Guest, World
from pool.systemd import Notifier
from pool.wire.entries import is_entry, model_of
from pool.wire.worker_messages import Welcome

if TYPE_CHECKING:
    from pool.serve.front import Question

__all__ = ["Reconciler"]

log = logging.getLogger("pool")

Reply: TypeAlias = "Callable[[Question, dict[str, Any] | None, str | None], None]"

STOPPING = "the pool is stopping"


class Reconciler:
    """Used from the pool's loop."""

    def __init__(
        self,
        plan: Plan,
        machine: Machine,
        source: Source,
        notifier: Notifier,
        *,
        feed: Callable[[Event], None],
        adopt: Callable[[Plan], None],
        reply: Reply,
        is_lost: Callable[[int], bool],
        turn: Alarm,
    ) -> None:
        """`feed` has the core handle an event; `adopt` is told of each plan of other settings, before its rollout.

        `reply` has a value or an error. `is_lost`: whether a slot's device is gone. `turn` has the loop call `roll_on`
        and `tend`; it is set whenever there is something to do.
        """
        self.plan = plan
        self.has_served = False
        """Whether the service manager was told that the pool is ready."""
        self.awaits_jobs = False
        """Whether `turn` is to be asked for when jobs have ended."""
        self.bell = Doorbell()
        """Which the threads ring that read files; `on_rung` is to be called then."""
        self._machine = machine
        self._fleet = machine.fleet
        self._source = source
        self._notifier = notifier
        self._feed = feed
        self._adopt = adopt
        self._reply = reply
        self._is_lost = is_lost
        self._turn = turn
        self._world = self._good = plan.world.run_by(plan)
        # `_good`: the last with which every slot has come up
        self._rollout = Rollout(self._fleet, self._welcomes(), is_lost, self._unfinished)
        self._finish_by = 0.0
        self._left_out = False
        self._blamed: dict[tuple[int, int], Death] = {}  # by slot and incarnation, until one is READY there
        self._starting = {slot for slot, models in enumerate(plan.placement) if models}  # have not been READY yet
        self._wishes = Wishes(source, self.bell.ring)
        self._watch = VersionWatch(self.bell.ring)
        self._watch.every(plan.settings.pool.watch)
        self._look_later()

    # --- what is asked ------------------------------------------------------------------------------------------

    def ask(self, question: "Question | None") -> None:
        """For other settings: a client, or a signal."""
        self._turn.soon()
        try:
            wish = RELOAD if question is None else wish_of(question.what, question.about)
        except ValueError as error:
            why = str(error)
        else:
            unread = wish == RELOAD and self._source.read is None
            why = STOPPING if self._fleet.stopping else NO_FILE if unread else ""
            if not why:
                self._wishes.ask(wish, question)
                if self.has_served:
                    self._notifier.reloading("reads the configuration again", time.monotonic_ns() // 1000)
                return
        if question is None:
            log.warning("not reloaded: %s", why, extra=about("not_reloaded", reason=why))
        else:
            self._reply(question, None, why)

    def _settle(self, outcome: Outcome) -> None:
        stops = self._fleet.stopping
        if stops or outcome.granted is None:
            refusal = STOPPING if stops else outcome.refusal
            answer: dict[str, Any] = {"refused": refusal}
            by_name = outcome.wish.what in ("load", "unload")  # else it is about files: whoever reads the log has them
            _not_done("not reloaded", [callers(refusal)] if by_name else refusal.splitlines())
        else:
            self._watch.forget()
            answer = _told(outcome.granted, self._run_by(outcome.granted.plan))
        for question in outcome.askers:
            if question is not None:
                self._reply(question, answer, None)
        if self.has_served and not stops:
            self._notifier.ready("reloaded" if "slots" in answer else "not reloaded, see the log")

    # --- what happens -------------------------------------------------------------------------------------------

    def welcome(self, slot: int) -> Welcome:
        """What the slot's next worker is to have."""
        return self._rollout.welcome(slot)

    def lost(self) -> None:
        """A device is gone. Comes before the core tells those who wait that there is no worker left for them."""
        slots = self._fleet.slots
        lost = self._world.lost | {slot.number for slot in slots if self._is_lost(slot.number)}
        shut = {slot.number for slot in slots if slot.planned and slot.state in (SlotState.FATAL, SlotState.STOPPED)}
        self._learn(replace(self._world, lost=lost, shut=frozenset(shut)))

    def exited(self, event: WorkerExited) -> None:
        """Comes before the core is told, which says what that means for the slot."""
        if event.death.blamed is not None:
            self._blamed[event.slot, event.incarnation] = event.death

    def changed(self, change: SlotChanged) -> None:
        death = self._blamed.get((change.slot, change.incarnation))
        if change.state is SlotState.FATAL and change.slot in self._starting and death is not None:
            self._spare(change, death)
        elif change.state is SlotState.READY:
            self._starting.discard(change.slot)
            self._blamed = {key: each for key, each in self._blamed.items() if key[0] != change.slot}
        self._rollout.changed(change, None if death is None else death.blamed)
        if change.state is SlotState.READY:
            self._learn(self._world.served(change.slot, self.plan))
        self._feed_all(self._rollout.plans())
        self._turn.soon()

    def beside(self, failure: WorkerChanged) -> None:
        """What becomes of a worker beside the one that serves: of concern is a replacement that has failed."""
        if failure.role is not Role.REPLACEMENT or failure.state not in (WorkerState.GONE, WorkerState.STUCK):
            return
        death = self._blamed.pop((failure.slot, failure.incarnation), None)
        self._rollout.failed(failure, None if death is None else death.blamed)
        self._feed_all(self._rollout.plans())
        self._turn.soon()

    def serves(self) -> None:
        """The pool is READY for the first time."""
        self.has_served, self._left_out = True, False

    @property
    def tries_again(self) -> bool:
        """Whether slots that were given up for a version that is left out now are about to be tried again."""
        return self._left_out and self._rollout.is_under_way

    # --- time ---------------------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        now = time.monotonic()
        for due in (
            self._wishes.next_deadline(now),
            now if self._rollout.due() else self._finish_by if self._rollout.awaits_jobs else None,
            self._watch.next_deadline(now, self._is_busy),
        ):
            if due is not None:
                self._turn.by(due)
        self.awaits_jobs = self._rollout.awaits_jobs

    @property
    def _is_busy(self) -> bool:
        return self._rollout.is_under_way or self._wishes.is_busy

    def on_rung(self) -> None:
        self.bell.hush()
        self._turn.soon()

    def roll_on(self) -> None:
        self._feed_all(self._rollout.tend())

    def tend(self) -> None:
        refused = self._rollout.take_refused()
        if refused is not None:
            self._give_up(refused)
            self._turn.soon()  # what follows is decided by what there is then
        for outcome in self._wishes.tend(self._world):
            self._settle(outcome)
        if refused is None and not self._rollout.is_under_way and not self._fleet.stopping:
            self._arrived()
        if (found := self._watch.tend(self._world, self._is_busy)) is not None and not self._fleet.stopping:
            self._try(found)
        if not self._rollout.is_under_way and self._fleet.awaited:
            self._feed(ModelsAwaited(frozenset()))
        self._look_later()

    def _arrived(self) -> None:
        """Every slot has what it should: what no job was to get before is theirs now."""
        if not self.plan.pending:
            self._good = self._world
        elif nowhere := self._nowhere():
            self._watch.refused([model for model in self.plan.models if model.name in nowhere], self._world)
            self._go_back({model_of(name) for name in nowhere}, "its place is on a device that is gone")
        else:
            up = replace(self._world, up=frozenset(self.plan.given.names))
            if not self._run_by_first(up, replace(up, guests=())):
                self._go_back({model_of(name) for name in self.plan.pending}, "there is no room for it")

    def status(self) -> dict[str, object]:
        """For people: who is where while devices are gone, and what is not served for want of a place, too."""
        roll = self._rollout.status()
        if self.plan.pending and not roll["left"]:
            roll = {**roll, "left": list(range(len(self.plan.shares)))}
        away = [{"model": each.model, "from": each.home.label, "to": each.at.label} for each in self.plan.guests]
        moved = {"away": away, "stays": list(self.plan.stays)}
        return {"roll": roll, "versions": self._watch.status(), "moved": moved}

    # --- another world, another plan ----------------------------------------------------------------------------

    def _run_by(self, plan: Plan, *, back: bool = False) -> list[int]:
        """From now on. Returns the slots that get new workers."""
        former, self.plan = self.plan, plan
        self._world = plan.world.run_by(plan)
        _log_versions(former, self.plan)
        _log_guests(former, self.plan, self._world)
        if self.plan.policy != former.policy:
            self._feed(PolicyChanged(self.plan.policy))
        if self.plan.settings != former.settings:
            self._adopt(self.plan)
            self._watch.every(self.plan.settings.pool.watch)
            self._finish_by = time.monotonic() + self.plan.policy.drain_timeout_s
        slots = self._rollout.begin(self._welcomes(), back=back)
        # Whatever becomes of one of them, jobs of its models wait for it.
        awaited = {name for slot in self._rollout.left for name in self.plan.shares[slot].models}
        self._feed(ModelsAwaited(frozenset(awaited)))
        self._turn.soon()
        return slots

    def _run_by_first(self, *worlds: World, back: bool = False) -> bool:
        """Of these in which all fits; False where there is none, and nothing is another."""
        for world in worlds:
            with contextlib.suppress(InvalidConfig):
                self._run_by(planned(world), back=back)
                return True
        return False

    def _learn(self, world: World) -> None:
        """Something became of a device: models move, unless they need not."""
        if world != self._world and not self._fleet.stopping:
            self._run_by_first(world, replace(world, guests=()))

    def _try(self, found: World) -> None:
        """Versions that came, if there is room for them."""
        try:
            self._run_by(planned(found))
        except InvalidConfig as error:
            _not_done("versions that came are not served", str(error).splitlines())
            self._watch.unfit(found.found, self._world)

    def _spare(self, change: SlotChanged, death: Death) -> None:
        """Before the slot has served: what makes it useless for all that it has is left out, if it can be."""
        name = death.blamed
        if name is None or not death.unloadable or self._fleet.stopping:
            return
        model = next((each for each in self.welcome(change.slot).models if each.name == name), None)
        world, now = self._world.spared(name), self.plan.model(name)
        # Of several slots with it the first one has told.
        if model is None or world is None or now is None or now.path != model.path:
            return
        text = "model %s: version %s cannot be loaded, so the pool starts without it: %s"
        extra = about("version_left_out", model=model_of(name), version=model.version)
        log.error(text, model_of(name), model.version, change.reason, extra=extra)
        self._watch.refused([model], self._world)
        self._good = self._good.spared(name) or self._good
        self._left_out = self._run_by_first(world, replace(world, guests=()), back=True)

    def _give_up(self, refused: Refused) -> None:
        """What did not come up in one slot is not to be in any: that of the model that the worker has named.

        If it has named none, or one of which nothing is new, all that was new goes. Guests were served before: unless
        the worker has named one of them, they are to blame only where nothing else was new.
        """
        named, at = refused.blamed, self.plan.devices[refused.slot]
        here = [guest for guest in self.plan.guests if guest.at == at and guest.model in refused.new]
        guests = {guest.model for guest in here}
        if named in guests or (guests and guests == refused.new and not refused.more):
            unfit = {
                (guest.model, guest.home): f"model {guest.model} is not moved from {guest.home.label}: a worker on"
                f" {guest.at.label} did not come up with it"
                for guest in here
                if named not in guests or guest.model == named
            }
            self._run_by_first(replace(self._world, unfit={**self._world.unfit, **unfit}), back=True)
            return
        new = (refused.new - guests) | {*self.plan.pending}
        taken, why = new, "a slot did not come up with it"
        if named is not None and named not in new:
            why = f"a slot did not come up with model {named}"
            self._watch.postpone()
        else:
            taken = new if named is None else frozenset({named})
            several = [each for each in self.plan.models if each.name in taken and is_entry(each.name)]
            others = [each for each in refused.versions if each.name in taken and each not in several]
            self._watch.refused([*others, *several], self._world)
        # Whether a model changed by itself, or by what is every model's, is not told by what the worker had.
        all_of_it = refused.more and (named not in new or named in refused.changed)
        self._go_back(None if all_of_it else {model_of(name) for name in taken}, why)

    def _go_back(self, models: AbstractSet[str] | None, why: str) -> None:
        """Of these models, or of all there is, what was served when every slot had come up last is served again.

        Where that takes more than their own places, it is all.
        """
        former, here = self.plan, self._world
        back, everything = here.restored(models, self._good), here.restored(None, self._good)
        if everything.wants_as(here):
            return  # there is nothing else that was served
        alone = replace(everything, guests=())
        worlds = everything, alone, replace(alone, given=None)
        self._run_by_first(*(worlds if back.wants_as(here) else (back, *worlds)), back=True)
        gone = sorted(former.paths.keys() - self.plan.paths.keys())
        if gone:
            log.error("not served, as %s: %s", why, ", ".join(gone), extra=about("models_given_up", models=gone))
        again = sorted(each.name for each in self.plan.models if each not in former.models)
        if again:
            text = "served as before, as %s: %s"
            log.error(text, why, ", ".join(again), extra=about("models_restored", models=again))

    def _nowhere(self) -> set[str]:
        """What no job gets yet, if no slot can have got it, though former versions of the same model are served."""
        shares = enumerate(self.plan.shares)
        here = {name for number, share in shares if not self._is_lost(number) for name in share.models}
        settled = self.plan.settled
        return {
            name
            for name in self.plan.pending
            if name not in here and not here.isdisjoint(settled.get(model_of(name), ()))
        }

    # --- within -------------------------------------------------------------------------------------------------

    def _welcomes(self) -> list[Welcome]:
        return [self.plan.welcome(slot) for slot in range(len(self.plan.devices))]

    def _feed_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self._feed(event)

    def _unfinished(self, names: Collection[str]) -> bool:
        """Whether versions that no job gets any more, beside others of their model, still have some."""
        models, several = self._machine.backlog.models, self.plan.policy.versions
        going = [models[name] for name in names if name in models and (is_entry(name) or name in several)]
        return time.monotonic() < self._finish_by and any(model.jobs for model in going)


# --- what people are told -------------------------------------------------------------------------------------------


def _not_done(what: str, lines: Collection[str]) -> None:
    for line in lines:
        log.error("%s: %s", what, line, extra=about("not_reloaded", reason=line))


def _told(granted: Granted, slots: list[int]) -> dict[str, Any]:
    """For who asked, and for the log."""
    for change in granted.changes:
        log.info("reloaded: %s", change.line, extra=about("reloaded", key=change.key))
    if slots:
        text = "reloaded: slots %s get new workers, one after the other"
        log.info(text, ", ".join(map(str, slots)), extra=about("reload_rolls", slots=slots))
    elif not granted.changes:
        log.info("reloaded: nothing is another than before", extra=about("reloaded"))
    changes = [
        {"key": change.key, "before": change.before, "after": change.after, "line": change.line}
        for change in granted.changes
    ]
    return {"changes": changes, "slots": slots}


def _log_versions(former: Plan, plan: Plan) -> None:
    """Which versions are served from now on, which jobs get of models of which several are, and by which labels."""
    for name, served in plan.given.served.items():
        known = former.given.served.get(name)
        before = None if known is None else known.number
        if not is_entry(name) and served.number != before and name in former.paths:
            extra = about("version_found", model=name, version=served.number, before=before)
            log.info(
                "model %s: version %s → %s, of %s", name, before or "none", served.number, served.path, extra=extra
            )
    for name, versions in plan.policy.versions.items():
        if former.policy.versions.get(name) != versions:
            extra = about("versions_served", model=name, versions=versions.numbers, labels=str(versions))
            log.info("model %s: versions %s are served", name, versions, extra=extra)


def _log_guests(former: Plan, plan: Plan, world: World) -> None:
    for guest in plan.guests:
        if guest not in former.guests:
            text = "model %s: %s is gone, so it comes up on %s"
            log.warning(text, *_way(guest), extra=about("model_moved", **_ends(guest)))
    for guest in former.guests:
        if guest not in plan.guests and plan.devices.index(guest.home) not in world.lost:
            text = "model %s: is on %s again, and leaves %s"
            log.info(text, *_way(guest), extra=about("model_returned", **_ends(guest)))
    for line in plan.stays:
        if line not in former.stays:
            log.error("%s", line, extra=about("model_not_moved", reason=line))


def _way(guest: Guest) -> tuple[str, str, str]:
    return guest.model, guest.home.label, guest.at.label


def _ends(guest: Guest) -> Mapping[str, Any]:
    return {"model": guest.model, "device": guest.home.label, "to": guest.at.label}
