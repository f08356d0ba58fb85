"""The slots: which worker sits where, how long it may take, what follows when it dies."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

from pool.core import actions as do
from pool.core import events as told
from pool.core.asides import Asides
from pool.core.jobs import Batch
from pool.core.orders import Orders
from pool.core.policy import Policy, SlotPlan
from pool.core.restart import GivenUp, Pause, RestartHistory
from pool.core.seating import Seating
from pool.core.silence import Silence
from pool.core.slots import ALIVE, OfWorker, Slot, SlotState
from pool.core.timers import Timers
from pool.core.turnover import DRAIN, EMPTY, Turnover
from pool.core.way_up import is_news, overrun, unready
from pool.wire.phases import Phase
from pool.wire.signatures import ModelInfo

__all__ = ["Supervision"]

HELD = (SlotState.READY, SlotState.DRAINING, SlotState.STOPPING)  # by a worker, with the models that it has
GONE = (SlotState.BACKOFF, SlotState.STOPPED, SlotState.FATAL)


class Supervision:
    """The half of the machine that moves slots through their states. It appends to `orders` and sets slot timers."""

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
        self.stopping = False
        self.stop_reason = ""
        self.gave_up = False
        """Whether it stops because only another start of it can serve."""
        self.over = False
        """Whether it was said that the pool has ended."""
        self.due: list[Slot] = []
        """The slots in BACKOFF whose pause has ended in this turn."""
        self.changes = 0
        """How often a slot's state has become another."""
        self.policy = policy
        self.turnover = Turnover(self)
        self.asides = Asides(policy, timers, orders)
        self.seating = Seating(self)
        self._rng = rng
        self.timers = timers
        self._wanted = wanted
        self._silence = Silence(policy, timers)
        self._history = [RestartHistory(policy, rng) for _ in plans]
        self._announced = False

    def adopt(self, policy: Policy) -> None:
        """Timers that run stay as they are; the deaths of each slot are counted on."""
        self.policy = policy
        self.changes += 1  # it may be decided otherwise now who can be spared
        for slot in self.slots:
            if slot.state is SlotState.READY and policy.standby is not (self.asides.standby(slot) is not None):
                self.timers.set(("standby", slot.number), 0.0)  # with this event
        self.asides.adopt(policy)
        for history in self._history:
            history.policy = policy
        self._silence.adopt(policy, self.slots)

    def handle(self, event: told.Event, now: float) -> None:
        if isinstance(event, told.WorkerHello):
            self._same_release(now)
        if self.asides and self.asides.handle(event, now):
            return
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
                self.turnover.restart(event.slot, now, event.sparing)
            case told.DrainAsked():
                self.turnover.drain(event.slot, now)
            case OfWorker() if (seated := self.current(event.slot, event.incarnation)) is not None:
                self._hear(seated, event, now)

    # --- what others ask ----------------------------------------------------------------------------------------

    def current(self, number: int, incarnation: int) -> Slot | None:
        """The slot, if this incarnation still sits in it: everything that a former one says is dropped."""
        if number not in self._by_number:
            return None
        slot = self._by_number[number]
        return slot if slot.incarnation == incarnation and slot.state in ALIVE else None

    def alive(self) -> Iterator[Slot]:
        return (slot for slot in self.slots if slot.state in ALIVE)

    def held(self, slot: Slot) -> Iterator[str]:
        """The models that a worker of the slot has, or may come up with: it was told of them, and they may be gone."""
        yield from slot.models
        if slot.state is SlotState.LOADING:
            yield from slot.welcomed
        for aside in self.asides.of(slot):
            yield from aside.models

    def all_down(self) -> bool:
        """No process is left and none will be spawned."""
        if self.asides:
            return False
        if self.stopping:
            return all(slot.state in (SlotState.STOPPED, SlotState.FATAL) for slot in self.slots)
        seated = [slot for slot in self.slots if slot.planned]
        if not seated or self.awaited or any(slot.state is not SlotState.FATAL for slot in seated):
            return False
        return not any(slot.state in ALIVE for slot in self.slots)  # one that was emptied may not be gone yet

    def only_restart_helps(self) -> bool:
        """No slot serves or will, and some do not because their workers are of another release than the pool."""
        if self.stopping or self.asides:
            return False
        seated = [slot for slot in self.slots if slot.planned]
        waiting = sum(slot.waits_for_release for slot in seated)
        return waiting > 0 and waiting + sum(slot.state is SlotState.FATAL for slot in seated) == len(seated)

    def verdict(self) -> do.PoolStopped:
        fatal = [slot for slot in self.slots if slot.state is SlotState.FATAL]
        if self.gave_up:
            return do.PoolStopped(failed=True, reason=f"no slot is left that could serve: {self.stop_reason}")
        if self.stopping:
            return do.PoolStopped(failed=False, reason=self.stop_reason)
        why = "; ".join(f"slot {slot.number}: {slot.reason}" for slot in fatal)
        return do.PoolStopped(failed=True, reason=f"no slot is left that could serve: {why}")

    # --- a worker's way up --------------------------------------------------------------------------------------

    def _plan(self, slot: Slot, models: tuple[str, ...], now: float) -> None:
        if not slot.lasts:
            self.down += bool(models) - bool(slot.planned)
        slot.planned = models
        if slot.state not in HELD:
            slot.models = models
        self.changes += 1  # it may be decided otherwise now who can be spared
        if not models:
            self.turnover.empty(slot, now)

    def spawn(self, slot: Slot, now: float) -> None:
        # STOPPED, BACKOFF, FATAL → STARTING
        standby = self.asides.standby(slot) if self.asides else None
        seats = standby is not None and standby.has_imported
        if standby is not None and seats:
            self.asides.take(standby)
            slot.seat(standby.incarnation)
            slot.pid = standby.pid
        else:
            slot.seat(slot.named + 1)
        self.change(slot, SlotState.STARTING, now)
        slot.phase_since = now
        self.timers.set(("slot", slot.number), now + self.policy.import_timeout_s)
        if not seats:
            self.orders.append(do.SpawnWorker(slot.number, slot.incarnation))
        else:
            # STARTING → LOADING
            self.change(slot, SlotState.LOADING, now)
            slot.welcomed = slot.planned
            self.orders.append(do.TakeSeat(slot.number, slot.incarnation))

    def _hear(self, slot: Slot, event: told.Event, now: float) -> None:
        """Of the worker that sits in the slot."""
        policy, number = self.policy, slot.number
        starts = slot.state is SlotState.STARTING
        match event:
            case told.SpawnHeld() if starts:
                slot.detail = event.why
                longest_s = policy.device_free_timeout_s + policy.import_timeout_s
                self.timers.set(("slot", number), slot.since + longest_s)
            case told.WorkerSpawned():
                slot.pid = event.pid
                if starts:
                    slot.phase_since, slot.detail = now, ""
                    self.timers.set(("slot", number), now + policy.import_timeout_s)
            case told.WorkerHello() if starts:
                # STARTING → LOADING
                self.change(slot, SlotState.LOADING, now)
                slot.welcomed = slot.planned
                self.orders.append(do.WelcomeWorker(number, slot.incarnation))
            case told.WorkerBeat():
                self._silence.heard(slot, now)
                # One that serves has no other phase. READY comes with the phase that has none, within the last budget.
                budget = policy.phase_budget_s(event.phase)
                if slot.state is SlotState.LOADING and budget is not None and is_news(slot, event):
                    slot.phase, slot.detail, slot.phase_since = event.phase, event.detail, now
                    self.timers.set(("slot", number), now + budget)
            case told.WorkerReady() if slot.state is SlotState.LOADING:
                if (why := unready(slot.welcomed, event)) is not None:
                    self.kill(slot, why, now)
                    return
                # LOADING → READY
                self.timers.clear(("slot", number))
                self.serve(slot, event.lanes, {model.name: model for model in event.models}, now)
            case told.WorkerMeasured():
                slot.resident_bytes = event.resident_bytes
            case told.WorkerBroken():
                self.kill(slot, f"sent what cannot be understood: {event.what}", now)

    def _same_release(self, now: float) -> None:
        """A worker of the pool's release has come, so others may."""
        for slot in self.slots:
            if slot.waits_for_release:
                self.timers.set(("slot", slot.number), now)
            slot.other_release = False

    def serve(self, slot: Slot, lanes: int, loaded: Mapping[str, ModelInfo], now: float) -> None:
        slot.models = slot.welcomed
        slot.loaded = dict(loaded)
        slot.versions = {name: info.version for name, info in loaded.items() if info.version is not None}
        slot.lanes = lanes
        slot.idle_lanes = list(range(lanes))
        slot.phase, slot.phase_since, slot.detail = Phase.SERVING, now, ""
        self._silence.begin(slot, now)
        if self.policy.standby and ("standby", slot.number) not in self.timers:
            self.timers.set(("standby", slot.number), now)
        self.change(slot, SlotState.READY, now)
        self._announce()

    def _announce(self) -> None:
        """PoolReady, once: at the first READY slot, or when every slot is READY or has none to wait for."""
        if self._announced or self.stopping:
            return
        seated = [slot for slot in self.slots if slot.planned]
        serving = sum(slot.state is SlotState.READY for slot in seated)
        settled = serving + sum(not slot.lasts or slot.waits_for_release for slot in seated)
        if serving and (settled == len(seated) or not self.policy.ready_needs_all):
            self._announced = True
            self.orders.append(do.PoolReady(serving, len(seated)))

    # --- a worker's way down ------------------------------------------------------------------------------------

    def kill(self, slot: Slot, reason: str, now: float, stacks: bool = False) -> None:
        """STARTING, LOADING, READY, DRAINING, STOPPING → STOPPING, by SIGKILL; `stacks` as in `KillWorker`."""
        if slot.killed_for is not None:
            return
        slot.killed_for = reason
        if slot.state is not SlotState.STOPPING:
            self.change(slot, SlotState.STOPPING, now, reason)
        self.timers.set(("slot", slot.number), now + self.policy.kill_timeout_s)
        self.orders.append(do.KillWorker(slot.number, slot.incarnation, reason, stacks))

    def stop(self, reason: str, now: float) -> None:
        """The pool takes no new work. While jobs wait that a slot could run, its workers come and go as before."""
        self.stopping, self.stop_reason = True, reason
        self.turnover.forgo_all(now)
        for slot in self.slots:
            self.seating.dismiss_standby(slot, now)
            if slot.waits_for_release:
                self.retire(slot, slot.reason, now)  # who starts the pool again has workers for what waits

    def retire(self, slot: Slot, reason: str, now: float) -> None:
        """READY → DRAINING; DRAINING → STOPPING once it holds nothing that anybody waits for; others stop at once."""
        if slot.state is SlotState.BACKOFF:
            self.timers.clear(("slot", slot.number))
            self.change(slot, SlotState.STOPPED, now, reason)
            self._announce()
        elif slot.state in (SlotState.STARTING, SlotState.LOADING):
            self._tell_to_stop(slot, reason, now)
        elif slot.state is SlotState.READY:
            self.change(slot, SlotState.DRAINING, now, reason)
        if slot.state is not SlotState.DRAINING or any(batch.wanted for batch in slot.batches.values()):
            return
        if slot.batches:
            self.kill(slot, f"ran only what nobody waits for when {reason}", now)
        else:
            self._tell_to_stop(slot, reason, now)

    def _tell_to_stop(self, slot: Slot, reason: str, now: float) -> None:
        self.change(slot, SlotState.STOPPING, now, reason)
        self.timers.set(("slot", slot.number), now + self.policy.stop_timeout_s)
        self.orders.append(do.StopWorker(slot.number, slot.incarnation))

    def exited(self, slot: Slot, death: told.Death, held_jobs: bool, now: float) -> str:
        """The slot after its worker's exit was seen. Returns the death in words, for the stories of its jobs."""
        killed = slot.killed_for is not None and not death.untouched
        reason = f"killed by the pool, because it {slot.killed_for}" if killed else death.text
        slot.pid = None
        slot.batches, slot.idle_lanes = {}, []
        self.timers.clear(("slot", slot.number))
        slot.other_release = death.other_release and slot.state is SlotState.STARTING  # after HELLO it is of this one
        if self.stopping and (slot.other_release or not self._wanted(slot)):
            # STARTING, LOADING, READY, DRAINING, STOPPING → STOPPED
            self.turnover.gone(slot)
            self.change(slot, SlotState.STOPPED, now, reason)
        elif (wish := self.turnover.gone(slot)) in (DRAIN, EMPTY):
            # DRAINING, STOPPING → STOPPED
            self.change(slot, SlotState.STOPPED, now, wish or "")
            self._announce()
        elif self.seating.is_followed(slot, now):
            # → BACKOFF, and on at once: see `succeed`
            served_s = now - slot.phase_since if slot.phase is Phase.SERVING else None
            self._history[slot.number].after_death(now, served_s=served_s, held_jobs=held_jobs, in_vain=slot.in_vain)
            self.change(slot, SlotState.BACKOFF, now, reason, death.last_output)
            self.timers.set(("slot", slot.number), now)
        elif wish is not None:
            # DRAINING, STOPPING → BACKOFF, without a pause
            asked = slot.state is SlotState.STOPPING  # else it died before it was told to go
            self.change(slot, SlotState.BACKOFF, now, reason, death.last_output, asked)
            self.timers.set(("slot", slot.number), now)
        elif not death.restartable and slot.phase is not Phase.SERVING:
            self._fatal(slot, now, reason, death.last_output)
        elif slot.other_release:
            # STARTING → BACKOFF: no crash, and no hurry, but the files may be put back
            self.change(slot, SlotState.BACKOFF, now, reason)
            self.timers.set(("slot", slot.number), now + self.policy.patient_pause_s)
            self._announce()
        else:
            # Once it serves, its status may be anybody's: a job's native code exits as it likes.
            served_s = now - slot.phase_since if slot.phase is Phase.SERVING else None
            history = self._history[slot.number]
            match history.after_death(now, served_s=served_s, held_jobs=held_jobs, in_vain=slot.in_vain):
                case GivenUp(why):
                    self._fatal(slot, now, f"{why}, the last: {reason}", death.last_output)
                case Pause(seconds):
                    # → BACKOFF
                    self.change(slot, SlotState.BACKOFF, now, reason, death.last_output)
                    self.timers.set(("slot", slot.number), now + seconds)
        return f"slot {slot.number} incarnation {slot.incarnation} died: {reason}"

    def forgive(self, slot: Slot) -> None:
        """What was before counts no more."""
        self._history[slot.number] = RestartHistory(self.policy, self._rng)
        slot.in_vain = 0

    def exited_beside(self, event: told.WorkerExited, now: float) -> bool:
        """Whether it was the exit of a worker that did not sit in a seat, and is done with."""
        aside = self.asides.find(event.slot, event.incarnation)
        follows = aside is not None and aside.follows
        if not self.asides.handle(event, now):
            return False
        if follows and event.death.no_room:
            self.turnover.refused(self.slots[event.slot], event.death.text)
        return True

    def gone_at_last(self, event: told.WorkerExited, now: float) -> None:
        """The exit of a worker that did not die when it was killed: the slot was FATAL for that alone."""
        slot = self.slots[event.slot] if 0 <= event.slot < len(self.slots) else None
        if slot is None or slot.incarnation != event.incarnation or slot.pid is None:
            return
        slot.pid = None
        if slot.state is not SlotState.FATAL or not slot.planned or self.stopping or self.over:
            return
        if isinstance(self._history[slot.number].after_death(now, served_s=None, held_jobs=True), Pause):
            # FATAL → STARTING; the pause is over long since
            self.spawn(slot, now)

    def _fatal(self, slot: Slot, now: float, reason: str, last_output: tuple[str, ...] = ()) -> None:
        self.turnover.gone(slot)
        self.seating.dismiss_standby(slot, now)
        self.change(slot, SlotState.FATAL, now, reason, last_output)
        self._announce()

    # --- time ---------------------------------------------------------------------------------------------------

    def slot_timer(self, number: int, now: float) -> None:
        """The slot's current state has lasted as long as it may."""
        slot = self.slots[number]
        match slot.state:
            case SlotState.BACKOFF:
                self.due.append(slot)
            case SlotState.STARTING | SlotState.LOADING:
                self.kill(slot, overrun(slot, self.policy), now, stacks=True)
            case SlotState.STOPPING if slot.killed_for is None:
                reason = f"did not exit within {self.policy.stop_timeout_s:g} s of being told to"
                self.kill(slot, reason, now, stacks=True)
            case SlotState.STOPPING:
                # It cannot be seen to be gone, so nothing may follow it on its device.
                pause_s = self.policy.kill_timeout_s
                reason = f"pid {slot.pid} did not die within {pause_s:g} s of SIGKILL (stuck in the kernel?)"
                self._fatal(slot, now, reason)

    def spawn_due(self, now: float) -> None:
        """The end of a turn: by now it is known whether a slot whose pause is over is still to have a worker."""
        for slot in self.due:
            if slot.state is SlotState.BACKOFF:
                self.spawn(slot, now)
        self.due.clear()

    def silence_timer(self, number: int, now: float) -> None:
        slot = self.slots[number]
        if (why := self._silence.judge(slot, now)) is not None:
            self.kill(slot, why, now, stacks=True)

    def batch_overran(self, batch: Batch, now: float) -> None:
        slot = self.slots[batch.slot]
        age = now - batch.started
        batch.overran = slot.killed_for is None  # else it may have been killed in time
        why = f"has run batch {batch.number} of {batch.model} for {age:.1f} s ([health] hung_after)"
        self.kill(slot, why, now, stacks=True)

    def change(
        self,
        slot: Slot,
        state: SlotState,
        now: float,
        reason: str = "",
        last_output: tuple[str, ...] = (),
        asked: bool = False,
    ) -> None:
        self.fatal += (state is SlotState.FATAL) - (slot.state is SlotState.FATAL)
        lasted = slot.lasts
        slot.become(state, now, reason)
        if slot.planned:
            self.down += lasted - slot.lasts
        if state in GONE:
            slot.models = slot.planned
        self.changes += 1
        self.changed.append(slot)
        self.orders.append(do.SlotChanged(slot.number, slot.incarnation, state, reason, last_output, asked))

    def validate(self) -> None:
        """Raises AssertionError where an invariant of the slots does not hold."""
        self.asides.validate()
        for slot in self.slots:
            lanes = sorted(slot.idle_lanes + [batch.lane for batch in slot.batches.values()])
            assert len(set(lanes)) == len(lanes), slot
            if slot.state in (SlotState.READY, SlotState.DRAINING):
                assert lanes == list(range(slot.lanes)), slot
            else:
                assert slot.state is SlotState.STOPPING or slot.killed_for or not lanes, slot
            for batch in slot.batches.values():
                assert (batch.slot, batch.incarnation) == (slot.number, slot.incarnation), batch
            bounded = slot.state in (
                SlotState.STARTING,
                SlotState.LOADING,
                SlotState.STOPPING,
                SlotState.BACKOFF,
            )
            assert (("slot", slot.number) in self.timers) == bounded, slot
