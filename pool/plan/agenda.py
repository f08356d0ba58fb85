"""The plan that the pool runs by, and what makes it another one: settings, versions, devices that go and come.

settings, versions that come ─► reloading ─┐
versions on the disk ─────────► watch ─────┼─► another plan ─► roll: a new worker in each slot that it concerns
devices that are gone, or back ─► moving ──┤                    │
what a slot did not come up with ──────────┴─◄──────────────────┘
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from pool.alarms import Alarm
from pool.core.actions import SlotChanged, SuccessorFailed
from pool.core.events import Event, ModelsAwaited, PolicyChanged
from pool.core.machine import Machine
from pool.core.slots import SlotState
from pool.doorbell import Doorbell
from pool.logs import about
from pool.plan.fallback import blamed, unloadable
from pool.plan.moving import Moving
from pool.plan.plan import Plan
from pool.plan.reloading import Reloading
from pool.plan.reloads import Reloaded, Reloads, Source
from pool.plan.roll import Refused, Roll
from pool.plan.version_watch import VersionWatch, log_several, log_versions
from pool.plan.wishes import Wish
from pool.router.front import Question
from pool.systemd.notify import Notifier
from pool.wire.entries import is_entry, model_of
from pool.wire.worker_messages import Welcome

__all__ = ["Agenda"]

log = logging.getLogger("pool")

Reply = Callable[[Question, dict[str, Any] | None, str | None], None]


class Agenda:
    """Used from the pool's loop."""

    def __init__(
        self,
        plan: Plan,
        machine: Machine,
        source: Source | None,
        environ: Mapping[str, str],
        notifier: Notifier,
        *,
        feed: Callable[[Event], None],
        adopt: Callable[[Plan], None],
        reply: Reply,
        is_lost: Callable[[int], bool],
        turn: Alarm,
    ) -> None:
        """`feed` has the core handle an event; `adopt` is told of each plan of other settings, before its roll.

        `turn` has the loop call `roll_on` and `tend`; it is set whenever there is something to do.
        `is_lost`: whether a slot's device is gone.
        """
        self.plan = plan
        self.has_served = False
        self.awaits_jobs = False
        """Whether `turn` is to be asked for when jobs have ended."""
        self.bell = Doorbell()
        """Which the threads ring that read files; `on_rung` is to be called then."""
        self._machine = machine
        self._is_lost = is_lost
        self._supervision = machine.supervision
        self._feed = feed
        self._adopt = adopt
        self._turn = turn
        self._roll = Roll(self._supervision, self._welcomes(), is_lost, self._unfinished)
        self._after: Plan | None = None  # follows the one that is rolled out
        self._good = plan  # the last with which every slot has come up
        self._finish_by = 0.0
        self._left_out = False
        self._starting = {slot for slot, models in enumerate(plan.placement) if models}  # have not been READY yet
        self._versions = VersionWatch(plan.watch_s, self.bell.ring)
        self._reloading = Reloading(
            None if source is None else Reloads(source, environ, self.bell.ring),
            notifier,
            serves=lambda: self.has_served,
            stops=lambda: self._supervision.stopping,
            reply=reply,
            adopt=self._reloaded,
            unfit=lambda wish: self._versions.unfit(wish.versions or {}, self.plan),
        )
        self._moving = Moving(self._supervision, self._reloading.settings_of, is_lost)
        self._look_later()

    # --- what is asked, and what happens ------------------------------------------------------------------------

    def ask(self, question: Question | None) -> None:
        """For other settings: a client, or a signal."""
        self._reloading.ask(question)
        self._turn.soon()

    def welcome(self, slot: int) -> Welcome:
        """What the slot's next worker is to have."""
        return self._roll.welcome(slot)

    def lost(self) -> None:
        """A device is gone. Comes before the core tells those who wait that there is no worker left for them."""
        self._change(self._moving.lost(self.plan))

    def changed(self, change: SlotChanged) -> None:
        if change.state is SlotState.FATAL and change.slot in self._starting:
            self._spare(change)
        elif change.state is SlotState.READY:
            self._starting.discard(change.slot)
        self._roll.changed(change)
        if change.state is SlotState.READY:
            self._change(self._moving.returned(change.slot, self.plan))
        self._feed_all(self._roll.plans())
        self._turn.soon()

    def failed(self, failure: SuccessorFailed) -> None:
        self._roll.failed(failure)
        self._feed_all(self._roll.plans())
        self._turn.soon()

    def serves(self) -> None:
        """The pool is READY for the first time."""
        self.has_served, self._left_out = True, False

    @property
    def tries_again(self) -> bool:
        """Whether slots that were given up for a version that is left out now are about to be tried again."""
        return self._left_out and self._roll.is_under_way

    # --- time ---------------------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        now = time.monotonic()
        for due in (
            self._reloading.next_deadline(now),
            now if self._roll.due() else self._finish_by if self._roll.awaits_jobs else None,
            self._versions.next_deadline(now, self._roll.is_under_way or self._reloading.is_busy),
        ):
            if due is not None:
                self._turn.by(due)
        self.awaits_jobs = self._roll.awaits_jobs

    def on_rung(self) -> None:
        self.bell.hush()
        self._turn.soon()

    def roll_on(self) -> None:
        self._feed_all(self._roll.tend())

    def tend(self) -> None:
        """New versions of models come as new settings do: with a new worker in each slot."""
        stopping = self._supervision.stopping
        refused = self._roll.take_refused()
        if refused is not None:
            self._give_up(refused)
            self._turn.soon()  # what follows is decided by what there is then
        self._reloading.tend(self.plan, self._after or self.plan)
        if refused is None and self._after is not None and not self._roll.is_under_way and not stopping:
            if nowhere := self._nowhere():
                entries = [model for model in self.plan.models if model.name in nowhere and is_entry(model.name)]
                self._versions.refused(entries, self.plan)
                self._go_back({model_of(name) for name in nowhere}, "its place is on a device that is gone")
            else:
                last, self._after = self._after, None
                self._become(self._moving.kept(last, self.plan))
        found = self._versions.tend(self.plan, self._roll.is_under_way or self._reloading.is_busy)
        if found and not stopping:
            log_versions(self.plan.versions, found)
            former, self.plan = self.plan.versions, self.plan.with_versions(found)
            back = any(name in former and served.number < former[name].number for name, served in found.items())
            self._roll_out(back=back)
        families = self._versions.take_families()
        if families and not stopping:
            self._reloading.found(families, self.plan)
        if not self._roll.is_under_way:
            if self._after is None and self.plan is not self._good:
                self._good = self.plan
                self._reloading.proven()
            if self._supervision.awaited:
                self._feed(ModelsAwaited(frozenset()))
        self._look_later()

    def status(self) -> dict[str, object]:
        """For people."""
        roll = self._roll.status()
        if self._after is not None and not roll["left"]:
            roll = {**roll, "left": list(range(len(self.plan.shares)))}
        return {"roll": roll, "versions": self._versions.status(), "moved": self._moving.status(self.plan)}

    # --- another plan -------------------------------------------------------------------------------------------

    def _reloaded(self, found: Reloaded, wish: Wish) -> list[int]:
        """What is decided here is another from now on; what the workers decide, with the next worker of each slot."""
        if wish.what != "versions":
            self._versions.adopt(found.plan.watch_s)
        self._after = None if found.first is None else found.plan
        return self._become(found.first or found.plan)

    def _become(self, plan: Plan) -> list[int]:
        former, self.plan = self.plan, plan
        log_several(former.policy.versions, plan.policy.versions)
        self._feed(PolicyChanged(plan.policy))
        self._adopt(plan)
        self._finish_by = time.monotonic() + plan.policy.drain_timeout_s
        self.plan = self._moving.lost(plan)  # what is new may have its place on a device that is gone
        return self._roll_out()

    def _change(self, plan: Plan, *, back: bool = False) -> None:
        """Models move, unless it is the plan that there is."""
        if plan is not self.plan and not self._supervision.stopping:
            self.plan = plan
            self._roll_out(back=back)

    def _roll_out(self, *, back: bool = False) -> list[int]:
        """New workers for the plan, in which slots. Whatever becomes of one of them, jobs of its models wait for it."""
        slots = self._roll.begin(self._welcomes(), back=back)
        names = {name for slot in self._roll.left for name in self.plan.shares[slot].models}
        self._feed(ModelsAwaited(frozenset(names)))
        self._turn.soon()
        return slots

    def _spare(self, change: SlotChanged) -> None:
        """Before the slot has served: what makes it useless for all that it has is left out, if it can be."""
        name = unloadable(change)
        if name is None or self._supervision.stopping:
            return
        model = next((each for each in self._roll.welcome(change.slot).models if each.name == name), None)
        plan = self.plan.spared(name)
        # Of several slots with it the first one has told.
        if model is None or plan is None or self.plan.path_of(name) != model.path:
            return
        text = "model %s: version %s cannot be loaded, so the pool starts without it: %s"
        extra = about("version_left_out", model=model_of(name), version=model.version)
        log.error(text, model_of(name), model.version, change.reason, extra=extra)
        self._versions.refused([model], self.plan)
        log_several(self.plan.policy.versions, plan.policy.versions)
        self.plan, self._left_out = plan, True
        self._good = self._good.spared(name) or self._good
        self._roll_out(back=True)
        self._feed(PolicyChanged(plan.policy))

    def _give_up(self, refused: Refused) -> None:
        """What did not come up in one slot is not to be in any: that of the model that the worker has named.

        If it has named none, or one of which nothing is new, all that was new goes. Guests were served before: unless
        the worker has named one of them, they are to blame only where nothing else was new.
        """
        named, guests = blamed(refused.reason), {guest.model for guest in self.plan.guests} & {*refused.models}
        if named in guests or (guests and guests == refused.names and not refused.more):
            self._change(self._moving.refused([named] if named in guests else guests, self.plan), back=True)
            return
        pending = self.plan.pending if self._after is not None else ()
        new = (refused.names - guests) | {*pending}
        taken, why = {*new}, "a slot did not come up with it"
        if named is not None and named not in new:
            why = f"a slot did not come up with model {named}"
            self._versions.postpone()
        else:
            taken = {*new} if named is None else {named}
            several = [each for each in self.plan.models if each.name in taken and is_entry(each.name)]
            others = [each for each in refused.versions if each.name in taken and each not in several]
            self._versions.refused([*others, *several], self.plan)
        # Whether a model changed by itself, or by what is every model's, is not told by what the worker had.
        all_of_it = refused.more and (named not in new or named in refused.changed)
        self._go_back(None if all_of_it else {model_of(name) for name in taken}, why)

    def _go_back(self, models: AbstractSet[str] | None, why: str) -> None:
        """Of these models, or of all there is, what was served when every slot had come up last is served again."""
        former, here, good, after = self.plan, self.plan.at_home(), self._good.at_home(), self._after
        if after is not None and models is not None:
            coming = {model_of(name) for name in former.pending}
            after = None if models & coming else after.at_home().restored(models, good)
            models = models | coming if after is None else models  # they come together
        plan = None if models is None else here.restored(models, good)
        if plan is None or plan == here:
            plan, models, after = good, None, None
        self._after = after
        if plan == here:
            return
        gone = sorted(here.paths.keys() - plan.paths.keys())
        if gone:
            log.error("not served, as %s: %s", why, ", ".join(gone), extra=about("models_given_up", models=gone))
        back = sorted(each.name for each in plan.models if each not in here.models)
        if back:
            text = "served as before, as %s: %s"
            log.error(text, why, ", ".join(back), extra=about("models_restored", models=back))
        log_several(here.policy.versions, plan.policy.versions)
        self._reloading.restore(models)
        self._versions.every(plan.watch_s)
        self.plan = self._moving.kept(plan, former)
        self._feed(PolicyChanged(self.plan.policy))
        self._adopt(self.plan)
        self._roll_out(back=True)

    def _nowhere(self) -> set[str]:
        """What is to follow, if nobody can have got it, though former versions of the same model are served."""
        here = {
            name for number, share in enumerate(self.plan.shares) if not self._is_lost(number) for name in share.models
        }
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
