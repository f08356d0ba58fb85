"""Keeps the world, and closes the difference between what should run where and what does.

settings, models by hand ─► requests ─┐
versions on the disk ─────► watch ──┼─► another world ─► plan ─► rollout: a new worker in each slot that it concerns
devices gone, or back ──────────────┤                              │
what a slot did not come up with ───┴─◄────────────────────────────┘
"""

import contextlib
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from pool.clock import Alarm
from pool.core import Machine
from pool.core.actions import SlotChanged, WorkerChanged
from pool.core.events import Death, Event, ModelsAwaited, PolicyChanged, StartFailed
from pool.core.fleet import KilledFor, Role, SlotState, WorkerState
from pool.errors import InvalidConfig
from pool.logs import about, callers
from pool.loop import Doorbell
from pool.plan.crashes import Crashes
from pool.plan.failures import copy_left_out, failure_of, nowhere, unloadable, unready
from pool.plan.plan import Plan
from pool.plan.planning import plan as planned
from pool.plan.requests import NO_FILE, RELOAD, Answer, Granted, Outcome, Requests, Source, request_of
from pool.plan.rollout import Refused, Rollout
from pool.plan.version_watch import VersionWatch
from pool.plan.world import Failure, World
from pool.systemd import Notifier
from pool.wire.entries import is_entry, model_of
from pool.wire.faults import Fault
from pool.wire.signatures import Refused as Refusal
from pool.wire.worker_messages import Welcome

__all__ = ["Reconciler"]

log = logging.getLogger("pool")

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
        is_lost: Callable[[int], bool],
        turn: Alarm,
    ) -> None:
        """`feed` has the core handle an event; `adopt` is told of each plan of other settings, before its rollout.

        `is_lost`: whether a slot's device is gone. `turn` has the loop call `roll_on` and `tend`; it is set whenever
        there is something to do.
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
        self._is_lost = is_lost
        self._turn = turn
        self._world = self._good = plan.world.run_by(plan)
        # `_good`: the last with which every slot has come up
        self._stuck: World | None = None  # in which jobs could get neither what is pending nor what was before
        self._rollout = Rollout(self._fleet, self._welcomes(), is_lost, self._unfinished, self._alone)
        self._finish_by = 0.0
        self._starting = {slot for slot, models in enumerate(plan.placement) if models}  # have not been READY yet
        self._crashes = Crashes()
        self._requests = Requests(source, self.bell.ring)
        self._watch = VersionWatch(self.bell.ring)
        self._watch.every(plan.settings.pool.watch)
        self._look_later()

    # --- what is asked ------------------------------------------------------------------------------------------

    def ask(self, what: str, wanted: str, answer: Answer | None) -> None:
        """For other settings, as in `request_of`. `answer` is called once; None: a signal, which the log answers."""
        self._turn.soon()
        try:
            request = request_of(what, wanted)
        except ValueError as error:
            why, fault = str(error), Fault.INVALID_INPUT
        else:
            unread = request == RELOAD and self._source.read is None
            why, fault = (STOPPING, Fault.POOL_STOPPING) if self._fleet.stopping else (NO_FILE, Fault.INVALID_STATE)
            if not self._fleet.stopping and not unread:
                self._requests.ask(request, answer)
                if self.has_served:
                    self._notifier.reloading("reads the configuration again", time.monotonic_ns() // 1000)
                return
        if answer is None:
            log.warning("not reloaded: %s", why, extra=about("not_reloaded", reason=why))
        else:
            answer(Refusal(why, fault))

    def _settle(self, outcome: Outcome) -> None:
        stops = self._fleet.stopping
        if stops or outcome.granted is None:
            refusal = STOPPING if stops else outcome.refusal
            answer: dict[str, Any] | Refusal
            answer = Refusal(refusal, Fault.POOL_STOPPING if stops else Fault.INVALID_CONFIG)
            by_name = outcome.request != RELOAD  # which is about files: whoever reads the log has them
            _not_done("not reloaded", [callers(refusal)] if by_name else refusal.splitlines())
        else:
            self._watch.forget()
            answer = _told(outcome.granted, self._run_by(outcome.granted.plan))
        for asker in outcome.askers:
            if asker is not None:
                asker(answer)
        if self.has_served and not stops:
            self._notifier.ready("not reloaded; see the log" if isinstance(answer, Refusal) else "reloaded")

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

    def died(self, slot: int, incarnation: int, death: Death) -> Death:
        """A worker is gone. Comes before the core hears of it, so that jobs of the slot's other models wait for them.

        Where it could not load a model, and its slot has not served yet, the slot starts without that one. Where no job
        gets that one yet, it is given up: the slot's device was away at its turn. The core is to hear of the death that
        is returned.
        """
        here = self._fleet.current(slot, incarnation)
        asked = self._rollout.left  # of which it is known what they go back to
        starts = slot in self._starting
        if here is None or not (starts or self.plan.pending):
            return death
        kill = here.worker.killed_for
        hung = kill is not None and kill.cause is KilledFor.SLOW and here not in self._fleet.replacements.requests
        if here.state is not SlotState.LOADING and not hung:
            return death
        if self._fleet.stopping or slot in asked or slot in self._rollout.again:
            return death
        judged = self._crashes.judge(slot, death, here.worker.end(death), self._machine.policy.restart_intensity + 1)
        if not starts:
            if (failure := unready(judged, self.plan)) is None:
                return death
            self._failed(failure, self._good)
            return judged
        if (failure := unloadable(slot, judged, self.welcome(slot), self.plan)) is None:
            return death
        if failure.unloadable and self.plan.settings.pool.ready == "strict" and not self.has_served:
            self._feed(StartFailed(f'{judged.text} ([pool] ready = "strict")'))
            return judged
        self._good = self._good.without(failure)  # it has never come up
        self._failed(failure, self._world.without(failure))
        self._rollout.at_once(self._starting - {*asked})
        self._starting = {each for each in self._starting if self.plan.shares[each].models}
        self._turn.soon()
        return judged

    def changed(self, change: SlotChanged | WorkerChanged) -> None:
        """A slot is in another state; or a worker beside the one that serves, if a replacement has failed."""
        is_up = change.state is SlotState.READY
        if isinstance(change, WorkerChanged):
            if change.role is not Role.REPLACEMENT or change.state not in (WorkerState.GONE, WorkerState.STUCK):
                return
        elif is_up:
            self._starting.discard(change.slot)
        self._rollout.changed(change)
        if is_up:
            self._learn(replace(self._world.served(change.slot, self.plan), stateful=self._stateful(change.slot)))
        self._tell_plans()
        self._turn.soon()

    def _stateful(self, slot: int) -> dict[str, int]:
        """The models that keep state, and the devices where it is, with what the slot's worker has said of its own."""
        found, here = dict(self._world.stateful), self._world.here.devices
        for name in self._fleet.slots[slot].models:
            model = self._machine.backlog.models[name]
            if not model.stateful:
                found.pop(name, None)
            elif name not in found:
                at = slot if model.affinity is None else model.affinity[0].number
                found[name] = here.index(self.plan.devices[at])
                if self.plan.homes[name].demand.replicas is None and len(self.plan.homes[name].devices) > 1:
                    text = "model %s keeps state, so it has one copy; `stateful = true` in its section starts no more"
                    log.info(text, name, extra=about("further_copies_end", model=name))
        return found

    def serves(self) -> None:
        """The pool is READY for the first time."""
        self.has_served = True

    @property
    def tries_again(self) -> bool:
        """Whether slots that were given up are about to be tried again, with what may come up there."""
        return self._rollout.is_under_way

    # --- time ---------------------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        now = time.monotonic()
        for due in (
            self._requests.next_deadline(now),
            now if self._rollout.due() else self._finish_by if self._rollout.awaits_jobs else None,
            self._watch.next_deadline(now, self._is_busy),
        ):
            if due is not None:
                self._turn.by(due)
        self.awaits_jobs = self._rollout.awaits_jobs

    @property
    def _is_busy(self) -> bool:
        return self._rollout.is_under_way or self._requests.is_busy

    def on_rung(self) -> None:
        self.bell.hush()
        self._turn.soon()

    def roll_on(self) -> None:
        for event in self._rollout.tend():
            self._feed(event)

    def tend(self) -> None:
        refused = self._rollout.take_refused()
        if refused is not None and refused.alone is not None:
            self._failed(refused.alone, self._world.without(refused.alone))
        elif refused is not None:
            self._failed(failure_of(refused, self.plan, self._good.unloadable), self._good)
        if refused is not None:
            self._turn.soon()  # what follows is decided by what there is then
        for outcome in self._requests.tend(self._world):
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
        elif self._world != self._stuck:
            plan = self.plan
            self._take_up()
            self._stuck = self._world if self.plan is plan else None

    def _take_up(self) -> None:
        """Jobs get what is pending; where that cannot be, what it was before.

        A lost device says nothing of a version that is only there: its model stays as it is until the device is back.
        """
        pending, absent = set(self.plan.pending), nowhere(self.plan, self._is_lost)
        models = set(map(model_of, pending)) - set(map(model_of, absent))
        if not models:
            return
        up = replace(self._world, up=frozenset(self.plan.given.names) - absent)
        if not self._run_by_first(up, replace(up, failovers=())):
            self._failed(Failure("there is no room for it", models), self._good)

    def status(self) -> dict[str, object]:
        """For people: who is where while devices are gone, and what is not served for want of a place, too."""
        update = self._rollout.status()
        if self.plan.pending and not update["left"]:
            absent = nowhere(self.plan, self._is_lost)
            if absent.issuperset(self.plan.pending):
                why = f"the device is lost that {', '.join(sorted(absent))} would be on; the versions before are served"
                update = {**update, "failure": update["failure"] or why}
            else:
                update = {**update, "left": list(range(len(self.plan.shares)))}
        away = [{"model": each.model, "home": each.home.label, "device": each.at.label} for each in self.plan.failovers]
        versions = {"broken": sorted(self._world.broken), "troubles": dict(self._watch.troubles)}
        failover = {"away": away, "stays": list(self.plan.stays)}
        left_out = [
            {"model": name, "slot": slot, "why": why}
            for name, slots in self._world.unloadable.items()
            for slot, why in sorted(slots.items())
        ]
        return {
            "rolling_update": update,
            "unloadable": left_out,
            "versions": versions,
            "failover": failover,
            "copies": self.plan.copies(),
        }

    # --- another world, another plan ----------------------------------------------------------------------------

    def _run_by(self, plan: Plan, *, requested: bool = True) -> list[int]:
        """From now on. `requested`: it is something new. Returns the slots that get new workers."""
        former, self.plan = self.plan, plan
        self._world = plan.world.run_by(plan)
        _log_versions(former, self.plan)
        _log_failovers(former, self.plan, self._world)
        if self.plan.policy != former.policy:
            self._feed(PolicyChanged(self.plan.policy))
        if self.plan.settings != former.settings:
            self._adopt(self.plan)
            self._watch.every(self.plan.settings.pool.watch)
            self._finish_by = time.monotonic() + self.plan.policy.drain_timeout_s
        slots = self._rollout.begin(self._welcomes(), first=self._first_copies(), back=not requested)
        # Whatever becomes of one of them, jobs of its models wait for it.
        waiting = (*self._rollout.left, *self._rollout.again)
        awaited = {name for slot in waiting for name in self.plan.shares[slot].models}
        self._feed(ModelsAwaited(frozenset(awaited)))
        self._turn.soon()
        return slots

    def _first_copies(self) -> list[int]:
        """The slots that models have to be in. Where a new one cannot be loaded there, no further copy is tried."""
        devices = {self.plan.world.here.devices[home.devices[0]] for home in self.plan.homes.values()}
        return [slot for slot, device in enumerate(self.plan.devices) if device in devices]

    def _run_by_first(self, *worlds: World) -> bool:
        """Of these in which all fits; False where there is none, and nothing is another."""
        for each in worlds:
            with contextlib.suppress(InvalidConfig):
                self._run_by(planned(each), requested=False)
                return True
        return False

    def _learn(self, world: World) -> None:
        """Something became of a device: models move, unless they need not.

        Failovers stay where they are; only where nothing fits so, they go wherever they can be.
        """
        if world != self._world and not self._fleet.stopping:
            self._run_by_first(world, replace(world, failovers=()))

    def _try(self, found: World) -> None:
        """Versions that came, if there is room for them."""
        former, self._world = self._world, replace(self._world, broken=found.broken)
        if found.found == former.found:
            return
        try:
            self._run_by(planned(found))
        except InvalidConfig as error:
            _not_done("new versions are not served", str(error).splitlines())
            known = {served for several in former.found.values() for served in several}
            new = [(name, each) for name, several in found.found.items() for each in several if each not in known]
            self._world = former.failed(Failure("there is no room for it", broken=tuple(new)))

    def _failed(self, failure: Failure, good: World) -> None:
        """What does not come up is one more fact, and the plan is made anew: its models are to be as in `good`.

        Where that is what is wanted already, nothing changes.
        """
        former, before = self.plan, self._world
        if self._fleet.stopping:
            return
        for name, slots in failure.unloadable.items():
            for slot, why in slots.items():
                extra = about("model_unloadable", model=name, slot=slot, reason=why)
                log.warning("slot %d is without model %s, which could not be loaded: %s", slot, name, why, extra=extra)
        self._watch.failed(failure.broken)
        self._world = before.failed(failure)
        worlds = [each for each in self._world.instead(failure.models, good) if not each.wants_as(before)]
        if not self._run_by_first(*worlds):
            return
        gone = sorted(former.paths.keys() - self.plan.paths.keys())
        if gone:
            text = "not served, because %s: %s"
            log.error(text, failure.why, ", ".join(gone), extra=about("models_given_up", models=gone))
        again = sorted(each.name for each in self.plan.models if each not in former.models)
        if again:
            text = "the former version or settings are served, because %s: %s"
            log.error(text, failure.why, ", ".join(again), extra=about("models_restored", models=again))

    # --- within -------------------------------------------------------------------------------------------------

    def _welcomes(self) -> list[Welcome]:
        return [self.plan.welcome(slot) for slot in range(len(self.plan.devices))]

    def _tell_plans(self) -> None:
        for event in self._rollout.plans():
            self._feed(event)

    def _alone(self, refused: Refused) -> Failure | None:
        serving = {name for slot in self._fleet.slots if slot.state is SlotState.READY for name in slot.models}
        return copy_left_out(refused, self.plan, self._good.homes, serving)

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
        log.info(text, ", ".join(map(str, slots)), extra=about("rolling_update_begun", slots=slots))
    elif not granted.changes:
        log.info("reloaded: no changes", extra=about("reloaded"))
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


def _log_failovers(former: Plan, plan: Plan, world: World) -> None:
    for failover in (*plan.failovers, *former.failovers):
        if failover in former.failovers and failover in plan.failovers:
            continue
        event, level, text = "failover", logging.WARNING, "model %s: %s is gone, so it starts on %s"
        if failover in former.failovers:
            event, level, text = "failover_ended", logging.INFO, "model %s: is on %s again and leaves %s"
            if plan.devices.index(failover.home) in world.lost:
                continue
        extra = about(event, model=failover.model, device=failover.home.label, to=failover.at.label)
        log.log(level, text, failover.model, failover.home.label, failover.at.label, extra=extra)
    for line in plan.stays:
        if line not in former.stays:
            log.error("%s", line, extra=about("failover_impossible", reason=line))
