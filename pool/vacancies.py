"""Who waits for a device: the workers that are to follow one whose memory NVML still shows, or that is alive.

dead worker's slot ── SpawnWorker ──► held ── NVML: it is free ──────────────► spawned
                                       │ ── NVML tells nothing in time ──────► spawned, and a warning
                                       │ ── NVML: it is gone, for some time ─► WorkerExited: the core gives it up
                                       └─── still taken when the time is over ► WorkerExited: the core backs off
                   ── SeatStandby ──► held ── likewise ── it has the device; or DeviceTaken
live worker's slot ─ SpawnSuccessor ─► held ── NVML: there is room for two ──► spawned
                                       └─── there is not, or who knows ──────► SuccessorRefused
"""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

from pool.core.actions import SeatStandby, SpawnSuccessor
from pool.core.events import Death, DeviceTaken, SpawnHeld, SuccessorRefused, WorkerExited
from pool.devices import Device
from pool.devices.lookout import Lookout
from pool.devices.vacancy import Found, Free, Lost, Room, Taken, Tenancy, Untold
from pool.logs import about
from pool.waiting import Held, Seat, Step, Wish

__all__ = ["Step", "Vacancies", "Wish"]

log = logging.getLogger("pool.worker")

HELD_LOOK_S = 0.1  # between two looks while a worker waits
ALIVE_LOOK_S = 2.0  # while a worker lives that was not seen in NVML's list yet
UNTOLD_LOOK_S = 1.0  # where NVML did not say; it may cost a process each time
SAY_S = 1.0  # between two changes of what is said about one that waits
LOST_S = 5.0  # for so long NVML has said that a device is gone: a reset, or another driver, takes less
REAP_S = 0.05
NOT_ASKED = 'NVML is not asked ([health] device_free_timeout is "0s")'


class Vacancies:
    """Holds each worker on a GPU back until its device is free of the former one, and no longer than `patience_s`."""

    def __init__(self, devices: Sequence[Device], lookout: Lookout, patience_s: float) -> None:
        """`patience_s` 0: nobody is held back, and NVML is never asked."""
        sharers = Counter(uuid for device in devices for uuid in device.uuids)
        self._seats = {
            slot: Seat(slot, Tenancy(device.label, {uuid: sharers[uuid] for uuid in device.uuids}))
            for slot, device in enumerate(devices)
            if device.uuids and patience_s > 0
        }
        self._devices = devices
        self._lookout = lookout
        self._patience_s = patience_s
        self._number = 0
        self._weighed: list[tuple[int, int]] = []

    def adopt(self, patience_s: float) -> None:
        """For those who begin to wait from now on. REQUIRES that neither this nor the former patience is 0."""
        self._patience_s = patience_s

    # --- what happens to a slot ----------------------------------------------------------------------------------

    def hold(self, action: Wish, now: float) -> SpawnHeld | SuccessorRefused | None:
        """What is said of a worker that has to wait, or does not come; None where there is nothing to wait for."""
        seat = self._seats.get(action.slot)
        if isinstance(action, SpawnSuccessor) and not self._must_ask(action):
            return None
        if seat is None:
            asks = isinstance(action, SpawnSuccessor) and bool(self._devices[action.slot].uuids)
            return _refused(action, NOT_ASKED) if asks else None
        # A driver that has hung for long already is not waited for again.
        began = now if seat.question is None else seat.asked_at
        seat.held = Held(action, now, began + self._patience_s, said_at=now)
        seat.look_at = now
        self._ask(seat, now)
        return SpawnHeld(action.slot, action.incarnation, f"waiting for NVML's word on {seat.tenancy.label}")

    def _must_ask(self, successor: SpawnSuccessor) -> bool:
        """Whether NVML has to say that there is room for it. Says why it comes beside, where that is clear already."""
        gpu = bool(self._devices[successor.slot].uuids)
        if gpu and successor.must_fit:
            return True
        why = '[restart] successor is "always"' if gpu else "on the CPU there is room for both"
        _say_beside(successor, why)
        return False

    def spawned(self, slot: int, pid: int, now: float) -> None:
        """A worker of the slot is there, perhaps beside another."""
        seat = self._seats.get(slot)
        if seat is not None:
            if seat.alive:
                seat.tenancy.join(pid, seat.alive)
            else:
                seat.tenancy.begin(pid, seat.found or {})
            seat.alive.add(pid)
            seat.lost = None
            seat.look_at = now + ALIVE_LOOK_S

    def exited(self, slot: int, pid: int) -> None:
        """Its exit was seen: what NVML tells from now on is of a device without it."""
        seat = self._seats.get(slot)
        if seat is not None and pid in seat.alive:
            seat.alive.remove(pid)
            seat.weigh_from = None
            seat.found, seat.valid_from = None, self._number + 1

    def lost(self, slot: int) -> str | None:
        """NVML's word for the loss of the slot's device, for which its last worker was not spawned."""
        seat = self._seats.get(slot)
        return None if seat is None else seat.lost

    def weigh(self, slot: int, now: float) -> None:
        """Asks what the slot's worker, which is warm by now, holds of its devices; `weighed` may have it later."""
        seat = self._seats.get(slot)
        if seat is not None and len(seat.alive) == 1:
            seat.weigh_from, seat.look_at = self._number + 1, now

    def weighed(self) -> list[tuple[int, int]]:
        """Slots and bytes that were not told yet."""
        told, self._weighed = self._weighed, []
        return told

    def cancel(self, slot: int, incarnation: int) -> bool:
        """Whether this worker was held back; it will not be spawned any more."""
        seat = self._seats.get(slot)
        if seat is None or seat.held is None or seat.held.action.incarnation != incarnation:
            return False
        seat.held = None
        return True

    # --- what the loop waits for ---------------------------------------------------------------------------------

    def next_deadline(self, now: float) -> float | None:
        """When `tend` is to be called at the latest."""
        instants = [now + REAP_S] if self._lookout.restless else []
        for seat in self._seats.values():
            if seat.looks and seat.question is None:
                instants.append(seat.look_at)
            if seat.held is not None:
                instants.append(seat.held.deadline)
        return min(instants, default=None)

    def tend(self, now: float) -> Iterator[Step]:
        """SpawnWorker for each whose device is free; SpawnHeld for news; WorkerExited for who waited in vain."""
        for answer in self._lookout.answers():
            for seat in self._seats.values():
                if seat.question == answer.number:
                    seat.question = None
                    if seat.weigh_from is not None and answer.number >= seat.weigh_from:
                        self._weigh(seat, answer.found)
                    if answer.number >= seat.valid_from:
                        yield from self._heard(seat, answer.found, now)
        for seat in self._seats.values():
            if seat.held is not None and now >= seat.held.deadline:
                yield self._out_of_time(seat, seat.held)
            if seat.looks and seat.question is None and now >= seat.look_at:
                self._ask(seat, now)
        if self._lookout.is_up and not any(seat.looks or seat.question is not None for seat in self._seats.values()):
            self._lookout.rest()

    def close(self) -> None:
        """Nothing is asked any more, and nobody waits."""
        self._lookout.close()

    def _ask(self, seat: Seat, now: float) -> None:
        if seat.question is None:
            self._number += 1
            seat.question, seat.asked_at = self._number, now
            self._lookout.ask(self._number, seat.slot, tuple(seat.tenancy.sharers))

    def _heard(self, seat: Seat, found: Found, now: float) -> Iterator[Step]:
        if seat.held is None:
            if seat.alive:
                seat.look_at = now + ALIVE_LOOK_S
                seat.tenancy.watch(found)
            return
        if isinstance(seat.held.action, SpawnSuccessor):
            yield self._second(seat, seat.held.action, found)
            return
        held, seat.look_at = seat.held, now + HELD_LOOK_S
        # What never told anything of this device is not worth waiting for.
        seat.told = seat.told or any(one.told for one in found.values())
        verdict = seat.tenancy.judge(found, now)
        if not isinstance(verdict, Lost):
            held.lost = None
            _say_xid(held, found)
        match verdict:
            case Lost():
                yield from self._still_lost(seat, held, verdict, now)
            case Free():
                if held.taken is not None:
                    where, waited_s = held.taken.where, now - held.since
                    extra = about("device_free", slot=seat.slot, device=where, waited_s=round(waited_s, 3))
                    log.info("slot %d: %s is free after %.1f s", seat.slot, where, waited_s, extra=extra)
                yield self._let_go(seat, held, found)
            case Taken() as taken:
                yield from self._still_taken(held, taken, now)
            case Untold(why, lasting):
                held.why, seat.look_at = why, now + UNTOLD_LOOK_S
                if lasting or not seat.told:
                    yield self._unverified(seat, held, why, found)

    def _weigh(self, seat: Seat, found: Found) -> None:
        seat.weigh_from = None
        size_bytes = seat.tenancy.footprint(found) if len(seat.alive) == 1 else None
        if size_bytes is not None:
            self._weighed.append((seat.slot, size_bytes))

    def _second(self, seat: Seat, successor: SpawnSuccessor, found: Found) -> Step:
        seat.held = None
        seat.tenancy.watch(found)
        verdict = seat.tenancy.room(found)
        if not isinstance(verdict, Room):
            return _refused(successor, verdict.text)
        _say_beside(successor, verdict.text)
        return successor

    def _still_taken(self, held: Held, taken: Taken, now: float) -> Iterator[Step]:
        held.taken = taken
        text = f"waiting for {taken.where}: {taken.what}"
        if not held.said:
            extra = about("device_taken", slot=held.action.slot, device=taken.where, reason=taken.what)
            log.warning("slot %d: %s", held.action.slot, text, extra=extra)
        if not held.said or (text != held.said and now >= held.said_at + SAY_S):
            held.said, held.said_at = text, now
            yield SpawnHeld(held.action.slot, held.action.incarnation, text)

    def _still_lost(self, seat: Seat, held: Held, lost: Lost, now: float) -> Iterator[Step]:
        seat.look_at = now + UNTOLD_LOOK_S
        if held.lost is None:
            held.lost, held.lost_at, held.said = lost, now, f"waiting for {lost.where}, which is gone: {lost.why}"
            yield SpawnHeld(held.action.slot, held.action.incarnation, held.said)
        elif now >= held.lost_at + LOST_S:
            yield self._given_up(seat, held, lost)

    def _given_up(self, seat: Seat, held: Held, lost: Lost) -> Step:
        seat.held, seat.lost = None, lost.why
        text = f"{lost.where} is gone: {lost.why}"
        if isinstance(held.action, SeatStandby):
            return DeviceTaken(seat.slot, held.action.incarnation, text)
        return WorkerExited(seat.slot, held.action.incarnation, Death(text, restartable=False))

    def _out_of_time(self, seat: Seat, held: Held) -> Step:
        if isinstance(held.action, SpawnSuccessor):
            seat.held = None
            return _refused(held.action, f"NVML: {held.why} within {self._patience_s:g} s")
        if held.lost is not None:
            return self._given_up(seat, held, held.lost)
        if held.taken is None:
            return self._unverified(seat, held, f"{held.why} within {self._patience_s:g} s", {})
        seat.held = None
        what = f"{held.taken.where} still has {held.taken.what}"
        text = f"{what} after {self._patience_s:g} s ([health] device_free_timeout)"
        if isinstance(held.action, SeatStandby):
            return DeviceTaken(seat.slot, held.action.incarnation, f"waited in vain: {text}")
        return WorkerExited(seat.slot, held.action.incarnation, Death(text, restartable=True))

    def _unverified(self, seat: Seat, held: Held, why: str, found: Found) -> Step:
        text = "slot %d: that %s is free of a former worker could not be verified: %s"
        extra = about("device_not_verified", slot=seat.slot, device=seat.tenancy.label, reason=why)
        log.warning(text, seat.slot, seat.tenancy.label, why, extra=extra)
        return self._let_go(seat, held, found)

    def _let_go(self, seat: Seat, held: Held, found: Found) -> Wish:
        seat.held, seat.found = None, found
        return held.action


def _say_xid(held: Held, found: Found) -> None:
    """Why the former worker may have died; once."""
    words = next((one.xid for one in found.values() if one.xid), "")
    if words and not held.xid_told:
        held.xid_told = True
        extra = about("device_error", slot=held.action.slot, reason=words)
        log.warning("slot %d: the driver says of its GPU: %s", held.action.slot, words, extra=extra)


def _refused(action: Wish, why: str) -> SuccessorRefused:
    extra = about("successor_refused", slot=action.slot, incarnation=action.incarnation, reason=why)
    log.info("slot %d: no successor gets ready beside its worker: %s", action.slot, why, extra=extra)
    return SuccessorRefused(action.slot, action.incarnation, why)


def _say_beside(action: SpawnSuccessor, why: str) -> None:
    extra = about("successor_fits", slot=action.slot, incarnation=action.incarnation, reason=why)
    text = "slot %d: incarnation %d gets ready beside its worker: %s"
    log.info(text, action.slot, action.incarnation, why, extra=extra)
