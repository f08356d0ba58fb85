"""Whether a device's memory is free of a slot's former worker, or has room for one more. Pure: it is handed what NVML
told, and the time.

By pid, where NVML's pids are those of this process: that is so once a worker of the slot was seen in the list. Where
they are not (a container, some MIG set-ups), by the device's used bytes: they must come back near the level before the
worker's spawn. That level moves with what others do, so it is also enough that half of what came with the worker (a
slot's share of it, where several slots are on the device) has gone, and that no more of it is going.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pool.devices.nvml import Occupancy, Occupant
from pool.wire.device_memory import DeviceHeld, Level

__all__ = ["Found", "Free", "Full", "Lost", "Room", "Taken", "Tenancy", "Untold", "Verdict"]

Found = Mapping[str, Occupancy]  # by uuid

SLACK_BYTES = 256 << 20  # a context of another process, or what the driver itself takes and gives
SLACK_SHARE = 0.05  # of what the worker had taken
ENOUGH_SHARE = 0.5  # of what the worker had taken; a driver frees a dead process's memory whole, or not yet
SETTLED_S = 3.0  # for so long nothing more has gone
ROOM_SHARE = 0.1  # of what the worker holds, that must be free beyond it for a second one: loading may take more
ROOM_BYTES = 512 << 20  # and this at least: a context, and what the libraries take


@dataclass(frozen=True, slots=True)
class Free:
    """Nothing of the former worker is left."""


@dataclass(frozen=True, slots=True)
class Taken:
    """`what` is in use on the device `where`, and of the former worker as far as can be seen."""

    where: str
    what: str


@dataclass(frozen=True, slots=True)
class Untold:
    """NVML does not say; `lasting`: and it will not, however long one waits."""

    why: str
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """The device `where` is gone; `why` is NVML's word for it."""

    where: str
    why: str


Verdict = Free | Taken | Untold | Lost


@dataclass(frozen=True, slots=True)
class Room:
    """Each of the slot's devices has room for a second worker; `text` has the numbers."""

    text: str


@dataclass(frozen=True, slots=True)
class Full:
    """One of them has not, or it is not known; `text` says why."""

    text: str


@dataclass(slots=True)
class _Level:
    """A device's used bytes: before the worker came, when it was last seen alive, the lowest since it died."""

    before: int | None = None
    last: int | None = None
    lowest: int | None = None
    lowest_at: float = 0.0


@dataclass(slots=True)
class Tenancy:
    """What workers of one slot were seen to take of its devices.

    `label` names the slot's devices for people; `sharers` has, for each uuid, how many slots of the pool are on it.
    """

    label: str
    sharers: Mapping[str, int]
    by_pid: bool = False
    """Whether a worker of this slot was seen in NVML's list: then who is not in it is gone."""
    _pids: set[int] = field(default_factory=set)
    _levels: dict[str, _Level] = field(default_factory=dict)

    @classmethod
    def of(cls, label: str, sharers: Mapping[str, int], former: Sequence[DeviceHeld]) -> "Tenancy":
        """As its workers have told it, the oldest first: the last one's levels count."""
        tenancy = cls(label, sharers)
        for held in former:
            tenancy._pids.update(held.pids)
            tenancy.by_pid = tenancy.by_pid or held.listed
            for uuid in sharers:
                level = held.levels.get(uuid, Level())
                tenancy._levels[uuid] = _Level(level.before, level.last)
        return tenancy

    @property
    def told(self) -> bool:
        """Whether NVML ever told anything of these devices."""
        levels = self._levels.values()
        return self.by_pid or any(level.before is not None or level.last is not None for level in levels)

    def followed_by(self, pid: int, found: Found, *, beside: bool = False) -> "Tenancy":
        """That of the next worker; `found` is what the device holds just before it comes.

        `beside`: a worker of this one lives, so the level is still the one before that worker.
        """
        levels = {}
        for uuid in self.sharers:
            former = self._levels.get(uuid, _Level()).before
            used = None if beside or uuid not in found else found[uuid].used_bytes
            # An older level, of before an earlier worker, is better than none.
            levels[uuid] = _Level(former if used is None else used)
        return Tenancy(self.label, self.sharers, self.by_pid, {pid}, levels)

    def held(self, found: Found | None = None) -> DeviceHeld:
        """For the worker after it. `found`: it is warm, and what it holds now counts."""
        levels = {uuid: Level(level.before, level.last) for uuid, level in self._levels.items()}
        size_bytes = None if found is None else self.footprint(found)
        return DeviceHeld(tuple(sorted(self._pids)), self.by_pid, levels, size_bytes)

    def room(self, found: Found) -> Room | Full:
        """Whether a second worker has room beside the one that is alive: as much as that holds, and a margin."""
        told = [self._room(uuid, found[uuid]) for uuid in self.sharers]
        full = next((one for one in told if isinstance(one, Full)), None)
        return full or Room("; ".join(one.text for one in told))

    def _room(self, uuid: str, occupancy: Occupancy) -> Room | Full:
        where = self._where(uuid)
        if occupancy.occupants is None or occupancy.free_bytes is None:
            return Full(f"what {where} has free is not known: {occupancy.trouble}")
        mine = [occupant.used_bytes or 0 for occupant in occupancy.occupants if self._is_mine(occupant)]
        if not any(mine):
            return Full(f"what its worker holds of {where} is not known: NVML does not list it")
        held = sum(mine)
        text = f"{where} has {_size(occupancy.free_bytes)} free, and its worker holds {_size(held)}"
        fits = occupancy.free_bytes >= held + max(ROOM_BYTES, held * ROOM_SHARE)
        return Room(text) if fits else Full(text)

    def watch(self, found: Found) -> None:
        """What the device holds while the worker is alive."""
        for uuid, occupancy in found.items():
            mine = [occupant for occupant in occupancy.occupants or () if self._is_mine(occupant)]
            self._pids |= {occupant.pid for occupant in mine}
            self.by_pid = self.by_pid or bool(mine)
            if occupancy.used_bytes is not None:
                self._levels[uuid].last = occupancy.used_bytes

    def footprint(self, found: Found) -> int | None:
        """The bytes that its one worker holds of all the slot's devices; None where that cannot be told apart."""
        held = [self._held(uuid, found[uuid]) for uuid in self.sharers]
        known = [each for each in held if each is not None]
        return sum(known) if known and len(known) == len(held) else None

    def _held(self, uuid: str, occupancy: Occupancy) -> int | None:
        mine = sum(occupant.used_bytes or 0 for occupant in occupancy.occupants or () if self._is_mine(occupant))
        if mine:
            return mine
        before = self._levels[uuid].before if uuid in self._levels else None
        if self.sharers[uuid] > 1 or before is None or occupancy.used_bytes is None:
            return None
        return occupancy.used_bytes - before if occupancy.used_bytes > before else None

    def judge(self, found: Found, now: float) -> Verdict:
        """What the device holds now that the worker is dead, if there was one. The worst of all its GPUs counts."""
        verdicts = [self._judge(uuid, found[uuid], now) for uuid in self.sharers]
        for kind in (Lost, Taken, Untold):
            for verdict in verdicts:
                if isinstance(verdict, kind):
                    return verdict
        return Free()

    def _judge(self, uuid: str, occupancy: Occupancy, now: float) -> Verdict:
        if occupancy.lost:
            return Lost(self._where(uuid), occupancy.trouble)
        for occupant in occupancy.occupants or ():
            if self._is_mine(occupant):
                return Taken(self._where(uuid), f"{_amount(occupant)} of the former worker ({_process(occupant)})")
            if occupant.orphan:
                return Taken(self._where(uuid), f"{_amount(occupant)} of a former pool's worker ({_process(occupant)})")
        if self.by_pid or not self._pids:
            # Strangers may keep what they have.
            told = occupancy.occupants is not None or (not self.by_pid and occupancy.used_bytes is not None)
            return Free() if told else Untold(occupancy.trouble)
        if occupancy.used_bytes is None:
            return Untold(occupancy.trouble)
        return self._judge_level(uuid, self._levels[uuid], occupancy.used_bytes, now)

    def _judge_level(self, uuid: str, level: _Level, used: int, now: float) -> Verdict:
        if level.before is None:
            return Untold(f"what {self._where(uuid)} held before the former worker came is not known", lasting=True)
        if level.last is None:
            level.last = used  # it died before it was looked at
        taken = max(0, level.last - level.before)
        if used <= level.before + max(SLACK_BYTES, taken * SLACK_SHARE):
            return Free()
        if level.lowest is None or used < level.lowest:
            level.lowest, level.lowest_at = used, now
        settled = now - level.lowest_at >= SETTLED_S
        if settled and level.last - used > taken / self.sharers[uuid] * ENOUGH_SHARE:
            return Free()
        return Taken(self._where(uuid), f"{_size(used - level.before)} more in use than before the former worker came")

    def _is_mine(self, occupant: Occupant) -> bool:
        # Its children are in its process group, which keeps its number as long as one of them lives.
        return occupant.pid in self._pids or occupant.group in self._pids

    def _where(self, uuid: str) -> str:
        return self.label if len(self.sharers) == 1 else f"{self.label} ({uuid})"


def _amount(occupant: Occupant) -> str:
    return _size(occupant.used_bytes) if occupant.used_bytes else "memory"


def _process(occupant: Occupant) -> str:
    return f"pid {occupant.pid}, " + (f"state {occupant.state}" if occupant.state else "which is gone")


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.0f} MiB"
