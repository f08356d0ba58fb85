"""The fleet: the way up and down of each worker, how long each step may take, and what its death means for its slot."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from pool.clock import Timers
from pool.core import actions as do
from pool.core import events as told
from pool.core.fleet.deaths import Deaths
from pool.core.fleet.replacements import Replacements
from pool.core.fleet.slot import ALIVE, HELD, Failure, Slot, SlotState
from pool.core.fleet.worker import ENDED, SERVES, Kill, KilledFor, Role, Worker, WorkerState
from pool.core.jobs import Batch
from pool.core.orders import Orders
from pool.core.policy import Policy, SlotPlan
from pool.wire.phases import Phase

__all__ = ["Fleet"]

GONE = (SlotState.BACKOFF, SlotState.STOPPED, SlotState.FATAL)
SECOND_LOOK_S = 2.0  # at one that is silent: the pool may have been stopped, and beats that came are still unread
LOOK_AGAIN_S = 5.0  # for a standby, where others are beside the serving worker


class Fleet:
    """It appends to `orders` and sets the timers ("worker", slot, incarnation), ("slot", slot), ("standby", slot)."""

    def __init__(
        self,
        policy: Policy,
        plans: Sequence[SlotPlan],
        rng: random.Random,
        timers: Timers,
        orders: Orders,
        wanted: Callable[[Slot], bool],
    ) -> None:
        """`wanted`: whether jobs wait, or run, that the slot could run."""
        self.slots = [
            Slot(number, plan.models, plan.device, plan.names, versions=dict(plan.versions), planned=plan.models)
            for number, plan in enumerate(plans)
        ]
        self._by_number = {slot.number: slot for slot in self.slots}
        self.orders = orders
        self.changed: list[Slot] = []
        """The slots whose state is another since somebody last emptied this list."""
        self.fatal = 0
        """How many slots are FATAL."""
        self.down = sum(bool(plan.models) for plan in plans)
        """How many slots with models run nothing any more, or not yet: they are FATAL or STOPPED."""
        self.awaited: frozenset[str] = frozenset()
        """The models that slots are about to get, whose jobs wait though no slot has them."""
        self.stop_asked: told.StopAsked | None = None
        """For which it stops, once it does."""
        self.over = False
        """Whether it was said that the pool has ended."""
        self.due: list[Slot] = []
        """The slots in BACKOFF whose pause has ended in this turn."""
        self.changes = 0
        """How often a slot's state has become another."""
        self.policy = policy
        self.deaths = Deaths(self, len(plans), rng, wanted)
        self.replacements = Replacements(self)
        self.timers = timers
        self._announced = False

    @property
    def stopping(self) -> bool:
        return self.stop_asked is not None

    def adopt(self, policy: Policy) -> None:
        """Timers that run stay as they are; the deaths of each slot are counted on."""
        self.policy = policy
        self.deaths.adopt(policy)
        self.changes += 1  # it may be decided otherwise now who can be spared
        for slot in self.slots:
            if slot.state is SlotState.READY and policy.standby is (slot.in_role(Role.STANDBY) is None):
                self.timers.set(("standby", slot.number), 0.0)  # with this event
            if slot.worker.state in SERVES:
                self._listen(slot.worker)

    def handle(self, event: told.Event, now: float) -> None:
        if isinstance(event, told.WorkerHello):
            self._same_release(now)
        match event:
            case told.Start():
                for slot in self.slots:
                    if slot.models:
                        self.spawn(slot, now)
                    else:
                        slot.reason = "no model is placed here"
            case told.SlotPlanned():
                self._plan(self.slots[event.slot], event.models, now)
            case told.RestartAsked():
                self.replacements.restart(event.slot, now, event.sparing)
            case told.DrainAsked():
                self.replacements.drain(event.slot, now)
            case told.OfWorker():
                worker = self.find(event.slot, event.incarnation)
                if worker is not None and worker.state is not WorkerState.STUCK:  # what that says is of no more use
                    self._hear(worker, event, now)

    # --- what others ask ----------------------------------------------------------------------------------------

    def current(self, number: int, incarnation: int) -> Slot | None:
        """The slot, if this incarnation still serves it: everything that a former one says is dropped."""
        if number not in self._by_number:
            return None
        slot = self._by_number[number]
        return slot if slot.worker.incarnation == incarnation and slot.state in ALIVE else None

    def find(self, number: int, incarnation: int) -> Worker | None:
        """Whatever its role is; None once its exit was seen."""
        return self._by_number[number].find(incarnation) if number in self._by_number else None

    def held(self, slot: Slot) -> Iterator[str]:
        """The models that a worker of the slot has, or may come up with: it was told of them, and they may be gone."""
        yield from slot.models
        if slot.state is SlotState.LOADING:
            yield from slot.worker.models
        if (replacement := slot.in_role(Role.REPLACEMENT)) is not None:
            yield from replacement.models

    def all_down(self) -> bool:
        """No process is left and none will be spawned."""
        if any(slot.beside for slot in self.slots):
            return False
        if self.stopping:
            return all(slot.state in (SlotState.STOPPED, SlotState.FATAL) for slot in self.slots)
        planned = [slot for slot in self.slots if slot.planned]
        if not planned or self.awaited or any(slot.state is not SlotState.FATAL for slot in planned):
            return False
        return not any(slot.state in ALIVE for slot in self.slots)  # one that was emptied may not be gone yet

    def only_restart_helps(self) -> bool:
        """No slot serves or will, and some do not because their workers are of another release than the pool."""
        if self.stopping or any(slot.beside for slot in self.slots):
            return False
        planned = [slot for slot in self.slots if slot.planned]
        waiting = sum(slot.waits_for_release for slot in planned)
        return waiting > 0 and waiting + sum(slot.state is SlotState.FATAL for slot in planned) == len(planned)

    def verdict(self) -> do.PoolStopped:
        if self.stop_asked is not None:
            return do.PoolStopped(isinstance(self.stop_asked, told.StartFailed), self.stop_asked.reason)
        fatal = [f"slot {slot.number}: {slot.reason}" for slot in self.slots if slot.state is SlotState.FATAL]
        return do.PoolStopped(failed=True, reason=f"no slot is left that could serve: {'; '.join(fatal)}")

    # --- a worker's way up --------------------------------------------------------------------------------------

    def _plan(self, slot: Slot, models: tuple[str, ...], now: float) -> None:
        if not slot.lasts:
            self.down += bool(models) - bool(slot.planned)
        slot.planned = models
        if slot.state not in HELD:
            slot.models = models
        self.changes += 1  # it may be decided otherwise now who can be spared
        if not models:
            self.replacements.empty(slot, now)

    def spawn(self, slot: Slot, now: float) -> None:
        """The slot gets its standby, if that has got so far, else a new worker."""
        worker = slot.in_role(Role.STANDBY)
        if worker is not None and worker.has_imported:
            if worker.state is WorkerState.STANDING_BY:
                worker.become(WorkerState.LOADING, now)
            worker.enter(Phase.IMPORTING, "", now)
            worker.models = slot.planned
            self.timers.set(worker.key, now + self.policy.import_timeout_s)
            self.give(slot, worker, now)
            self.orders.append(do.TakeSlot(slot.number, worker.incarnation))
        else:
            worker = self.begin(slot, Role.SERVING, now)
            self.give(slot, worker, now)
            self.orders.append(do.SpawnWorker(slot.number, worker.incarnation))

    def give(self, slot: Slot, worker: Worker, now: float) -> None:
        """STOPPED, BACKOFF, FATAL → STARTING, and on, as far as the worker is that has the slot from now on."""
        slot.give(worker)
        self.change(slot, SlotState.STARTING, now)
        if worker.state is not WorkerState.STARTING:
            self.change(slot, SlotState.LOADING, now)
        if worker.state is WorkerState.READY:
            self.serve(slot, now)

    def begin(self, slot: Slot, role: Role, now: float, reason: str = "") -> Worker:
        """A new worker, which the caller has spawned. REQUIRES that the slot has none in this role."""
        slot.named += 1
        worker = Worker(slot, slot.named, role, since=now, phase_since=now)
        self.timers.set(worker.key, now + self.policy.import_timeout_s)
        if role is not Role.SERVING:
            slot.beside.append(worker)
            self._say(worker, reason)
        return worker

    def _hear(self, worker: Worker, event: told.Event, now: float) -> None:
        policy, slot = self.policy, worker.slot
        starts = worker.state is WorkerState.STARTING
        match event:
            case told.SpawnHeld() if starts:
                worker.detail = event.why
                longest_s = policy.device_free_timeout_s + policy.import_timeout_s
                self.timers.set(worker.key, worker.since + longest_s)
            case told.WorkerSpawned():
                worker.pid = event.pid
                if starts:
                    worker.enter(worker.phase, "", now)
                    self.timers.set(worker.key, now + policy.import_timeout_s)
            case told.WorkerHello() if starts:
                worker.models = slot.planned
                worker.become(WorkerState.LOADING, now)
                if worker is slot.worker:
                    self.change(slot, SlotState.LOADING, now)
                else:
                    self._say(worker)
                greeting = do.HoldWorker if worker.role is Role.STANDBY else do.WelcomeWorker
                self.orders.append(greeting(slot.number, worker.incarnation))
            case told.WorkerBeat():
                worker.heard_at = now
                if worker.gets_on(event):
                    worker.enter(event.phase, event.detail, now)
                    self.timers.set(worker.key, now + (policy.phase_budget_s(event.phase) or 0.0))
                elif event.phase is worker.phase is Phase.AWAITING_DEVICE:
                    worker.detail = event.detail
                elif event.phase is Phase.STANDING_BY and worker.has_imported and worker.state is WorkerState.LOADING:
                    self.timers.clear(worker.key)  # it waits for as long as the serving worker lives
                    worker.enter(event.phase, "", now)
                    worker.become(WorkerState.STANDING_BY, now)
                    self._say(worker)
            case told.WorkerReady() if worker.state is WorkerState.LOADING or worker.role is Role.STANDBY:
                if (why := worker.unready(event)) is not None:
                    self.kill(worker, KilledFor.MISBEHAVED, why, now)
                    return
                self.timers.clear(worker.key)
                worker.lanes, worker.loaded = event.lanes, {model.name: model for model in event.models}
                worker.become(WorkerState.READY, now)
                if worker is slot.worker:
                    self.serve(slot, now)
                else:
                    worker.enter(Phase.SERVING, "", now)
                    self._say(worker)
            case told.WorkerMeasured():
                worker.resident_bytes = event.resident_bytes
            case told.WorkerBroken():
                self.kill(worker, KilledFor.MISBEHAVED, f"sent an invalid message: {event.what}", now)

    def _say(self, worker: Worker, reason: str = "", death: told.Death | None = None) -> None:
        number, incarnation = worker.slot.number, worker.incarnation
        self.orders.append(do.WorkerChanged(number, incarnation, worker.role, worker.state, reason, death))

    def _same_release(self, now: float) -> None:
        """A worker of the pool's release has come, so others may."""
        for slot in self.slots:
            if slot.waits_for_release:
                self.timers.set(("slot", slot.number), now)
            slot.other_release = False

    def serve(self, slot: Slot, now: float) -> None:
        """Its worker is READY: so is the slot."""
        worker = slot.worker
        slot.models = worker.models
        slot.versions = {name: info.version for name, info in worker.loaded.items() if info.version is not None}
        slot.idle_lanes = list(range(worker.lanes))
        worker.enter(Phase.SERVING, "", now)
        worker.heard_at = now
        self._listen(worker)
        if self.policy.standby and ("standby", slot.number) not in self.timers:
            self.timers.set(("standby", slot.number), now)
        self.change(slot, SlotState.READY, now)
        self.announce()

    def announce(self) -> None:
        """PoolReady, once: at the first READY slot, or when every slot is READY or has none to wait for.

        One that has died is waited for if it is about to be tried again, with other models.
        """
        if self._announced or self.stopping:
            return
        planned = [slot for slot in self.slots if slot.planned or slot.state is SlotState.FATAL]
        serving = sum(slot.state is SlotState.READY for slot in planned)
        given_up = [slot for slot in planned if not slot.lasts or slot.waits_for_release]
        settled = serving + sum(self.awaited.isdisjoint(slot.planned) for slot in given_up)
        if serving and (settled == len(planned) or not self.policy.ready_needs_all):
            self._announced = True
            self.orders.append(do.PoolReady(serving, len(planned)))

    # --- a worker's way down ------------------------------------------------------------------------------------

    def kill(self, worker: Worker, kill: KilledFor, reason: str, now: float, stacks: bool = False) -> None:
        """By SIGKILL; `stacks` as in `KillWorker`."""
        if worker.state in ENDED:
            return
        worker.killed_for = Kill(kill, reason)
        self._end(worker, WorkerState.KILLED, reason, self.policy.kill_timeout_s, now)
        self.orders.append(do.KillWorker(worker.slot.number, worker.incarnation, reason, stacks))

    def tell_to_stop(self, worker: Worker, reason: str, now: float) -> None:
        self._end(worker, WorkerState.STOPPING, reason, self.policy.stop_timeout_s, now)
        self.orders.append(do.StopWorker(worker.slot.number, worker.incarnation))

    def _end(self, worker: Worker, state: WorkerState, reason: str, timeout_s: float, now: float) -> None:
        worker.become(state, now)
        slot = worker.slot
        if worker is slot.worker and slot.state is not SlotState.STOPPING:
            self.change(slot, SlotState.STOPPING, now, reason)
        self.timers.set(worker.key, now + timeout_s)

    def dismiss(self, worker: Worker | None, now: float) -> None:
        """A worker beside the serving one, if there is one, is not wanted any more."""
        if worker is None:
            return
        worker.role = Role.LEAVING
        if worker.state not in ENDED:
            self.tell_to_stop(worker, "", now)

    def stop(self, asked: told.StopAsked, now: float) -> None:
        """The pool takes no new work. While jobs wait that a slot could run, its workers come and go as before."""
        self.stop_asked = asked
        self.replacements.forgo_all(now)
        for slot in self.slots:
            self.dismiss_standby(slot, now)
            if slot.waits_for_release:
                self.retire(slot, slot.reason, now)  # who starts the pool again has workers for what waits

    def abandon(self, why: str, now: float) -> None:
        """Kills all that is left."""
        for worker in [slot.worker for slot in self.slots] + [worker for slot in self.slots for worker in slot.beside]:
            self.kill(worker, KilledFor.UNWANTED, why, now)

    def retire(self, slot: Slot, reason: str, now: float) -> None:
        """READY → DRAINING; DRAINING → STOPPING once it holds nothing that anybody waits for; others stop at once."""
        if slot.state is SlotState.BACKOFF:
            self.change(slot, SlotState.STOPPED, now, reason)
            self.announce()
        elif slot.state in (SlotState.STARTING, SlotState.LOADING):
            self.tell_to_stop(slot.worker, reason, now)
        elif slot.state is SlotState.READY:
            self.change(slot, SlotState.DRAINING, now, reason)
        if slot.state is SlotState.DRAINING and self.is_empty(slot, reason, now):
            self.tell_to_stop(slot.worker, reason, now)

    def is_empty(self, slot: Slot, reason: str, now: float) -> bool:
        """Whether the slot's worker holds nothing. It is killed if nobody waits for anything that it holds."""
        if slot.batches and not any(batch.wanted for batch in slot.batches.values()):
            why = f"ran only jobs that nobody waits for when {reason}"
            self.kill(slot.worker, KilledFor.UNWANTED, why, now)
        return not slot.batches

    def forget(self, worker: Worker, now: float, state: WorkerState = WorkerState.GONE) -> None:
        """Nothing more is waited for."""
        self.timers.clear(worker.key)
        worker.become(state, now)
        if state is WorkerState.GONE:
            worker.pid = None
        if worker is not worker.slot.worker:
            worker.slot.beside.remove(worker)

    def exited_beside(
        self, worker: Worker, death: told.Death, now: float, state: WorkerState = WorkerState.GONE
    ) -> None:
        """None of it changes the slot: the serving worker serves on. STUCK: it cannot be seen to be gone."""
        slot, policy, reason = worker.slot, self.policy, worker.end(death)
        slot.count_death(worker, death)
        other_release = death.other_release and worker.state is WorkerState.STARTING
        slot.other_release |= other_release
        lasted = worker.state is WorkerState.STANDING_BY and now - worker.since >= policy.restart_period_s
        self.forget(worker, now, state)
        if worker.role is Role.REPLACEMENT:
            in_a_row = 1 if slot.failure is None else slot.failure.in_a_row + 1
            slot.failure = Failure(worker.incarnation, reason, now, in_a_row, death.no_room)
            if death.no_room:
                self.replacements.refused(slot, death.text)
                return
        elif worker.role is Role.STANDBY:
            # Another one comes after a pause, however often: the slot can do without.
            slot.standbys_lost = 1 if lasted else slot.standbys_lost + 1
            pause_s = min(policy.backoff_max_s, policy.backoff_first_s * 2.0 ** min(slot.standbys_lost, 64))
            if other_release or slot.standbys_lost > policy.restart_intensity:
                pause_s = policy.patient_pause_s
            self.timers.set(("standby", slot.number), now + pause_s)
        self._say(worker, reason, death)

    # --- time ---------------------------------------------------------------------------------------------------

    def worker_timer(self, number: int, incarnation: int, now: float) -> Slot | None:
        """A worker's state has lasted as long as it may. Returns the slot, if that is given up for it."""
        worker = self.find(number, incarnation)
        assert worker is not None, (number, incarnation)
        if worker.state in SERVES:
            self._silent(worker, now)
            return None
        if worker.state is not WorkerState.KILLED:
            self.kill(worker, KilledFor.SLOW, worker.overran(self.policy), now, stacks=True)
            return None
        why = f"pid {worker.pid} did not die within {self.policy.kill_timeout_s:g} s of SIGKILL (stuck in the kernel?)"
        match worker.role:
            case Role.SERVING:
                # It cannot be seen to be gone, so nothing may follow it on its device.
                worker.become(WorkerState.STUCK, now)
                self.deaths.give_up(worker.slot, now, why)
                return worker.slot
            case Role.LEAVING:
                self.forget(worker, now, WorkerState.STUCK)
                text = f"slot {number} incarnation {incarnation} did not leave: {why}"
                self.orders.append(do.Notice(text))
            case _:
                death = told.Death(why, restartable=True, untouched=True, cause=WorkerState.STUCK.name)
                self.exited_beside(worker, death, now, WorkerState.STUCK)
        return None

    def spawn_due(self, now: float) -> None:
        """The end of a turn: by now it is known whether a slot whose pause is over is still to have a worker."""
        for slot in self.due:
            if slot.state is SlotState.BACKOFF:
                self.spawn(slot, now)
        self.due.clear()

    def standby_timer(self, number: int, now: float) -> None:
        """A slot that serves has a standby, if there are to be any."""
        slot, wanted = self.slots[number], self.policy.standby
        standby = slot.in_role(Role.STANDBY)
        if not wanted:
            self.dismiss(standby, now)
        elif self.stopping or slot.state is not SlotState.READY:
            return
        elif slot.is_changing:
            self.timers.set(("standby", number), now + LOOK_AGAIN_S)  # not three at once
        elif standby is None:
            standby = self.begin(slot, Role.STANDBY, now)
            self.orders.append(do.SpawnStandby(number, standby.incarnation))

    def dismiss_standby(self, slot: Slot, now: float) -> None:
        self.timers.clear(("standby", slot.number))
        self.dismiss(slot.in_role(Role.STANDBY), now)

    def _listen(self, worker: Worker) -> None:
        """One that serves may be silent for so long."""
        if self.policy.silent_after_s is None:
            self.timers.clear(worker.key)
        else:
            self.timers.set(worker.key, worker.heard_at + self.policy.silent_after_s)

    def _silent(self, worker: Worker, now: float) -> None:
        """It serves, and may have been silent for too long.

        One that runs something is judged by its batch's budget alone: what it runs may hold the interpreter for long.
        An idle one has nothing else to do than to beat, and no job is to be the first to find out that it is stuck.
        """
        self._listen(worker)
        # The very sum that the timer is set to: a difference may be less than the bound even then.
        if now < worker.heard_at + (self.policy.silent_after_s or 0.0):
            return
        self.timers.set(worker.key, now + SECOND_LOOK_S)
        if worker.slot.batches:
            return
        if worker.missed_at > worker.heard_at:
            silent_s = now - worker.heard_at
            why = f"was idle and gave no sign of life for {silent_s:.0f} s ([health] silent_after)"
            self.kill(worker, KilledFor.SILENT, why, now, stacks=True)
        worker.missed_at = now

    def batch_overran(self, batch: Batch, now: float) -> None:
        worker = self.slots[batch.slot].worker
        age = now - batch.started
        batch.overran = worker.state not in ENDED  # else it may have been killed in time
        why = f"has run batch {batch.number} of {batch.model} for {age:.1f} s ([health] hung_after)"
        self.kill(worker, KilledFor.HUNG, why, now, stacks=True)

    def change(
        self,
        slot: Slot,
        state: SlotState,
        now: float,
        reason: str = "",
        death: told.Death | None = None,
        asked: bool = False,
    ) -> None:
        self.fatal += (state is SlotState.FATAL) - (slot.state is SlotState.FATAL)
        if slot.state is SlotState.BACKOFF:
            self.timers.clear(("slot", slot.number))
        lasted = slot.lasts
        slot.become(state, now, reason)
        if slot.planned:
            self.down += lasted - slot.lasts
        if state in GONE:
            slot.models = slot.planned
        self.changes += 1
        self.changed.append(slot)
        self.orders.append(do.SlotChanged(slot.number, slot.worker.incarnation, state, reason, death, asked))

    def validate(self) -> None:
        """Raises AssertionError where an invariant of the slots and their workers does not hold."""
        for slot in self.slots:
            slot.validate(self.timers)
