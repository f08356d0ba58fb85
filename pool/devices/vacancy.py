"""Whether a device's memory is free of a slot's former worker. Pure: it is handed what NVML told, and the time.

By pid, where NVML's pids are those of this process: that is so once a worker of the slot was seen in the list. Where
they are not (a container, some MIG set-ups), by the device's used bytes: they must come back near the level before the
worker's spawn. That level moves with what others do, so it is also enough that half of what came with the worker (a
slot's share of it, where several slots are on the device) has gone, and that no more of it is going.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pool.devices.occupancy import Occupancy, Occupant

__all__ = ["Found", "Free", "Taken", "Tenancy", "Untold", "Verdict"]

Found = Mapping[str, Occupancy]  # by uuid

SLACK_BYTES = 256 << 20  # a context of another process, or what the driver itself takes and gives
SLACK_SHARE = 0.05  # of what the worker had taken
ENOUGH_SHARE = 0.5  # of what the worker had taken; a driver frees a dead process's memory whole, or not yet
SETTLED_S = 3.0  # for so long nothing more has gone


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


Verdict = Free | Taken | Untold


@dataclass(slots=True)
class _Level:
    """A device's used bytes: before the worker came, when it was last seen alive, the lowest since it died."""

    before: int | None = None
    last: int | None = None
    lowest: int | None = None
    lowest_at: float = 0.0


@dataclass(slots=True)
class Tenancy:
    """What one slot's workers were seen to take of its devices.

    `label` names the slot's devices for people; `sharers` has, for each uuid, how many slots of the pool are on it.
    """

    label: str
    sharers: Mapping[str, int]
    by_pid: bool = False
    """Whether a worker of this slot was seen in NVML's list: then who is not in it is gone."""
    _pid: int | None = None
    _seen: set[int] = field(default_factory=set)
    _levels: dict[str, _Level] = field(default_factory=dict)

    def begin(self, pid: int, found: Found) -> None:
        """A worker was spawned; `found` is what the device held just before."""
        self._pid, self._seen = pid, {pid}
        for uuid in self.sharers:
            level = self._levels.setdefault(uuid, _Level())
            used = found[uuid].used_bytes if uuid in found else None
            # An older level, of before an earlier worker, is better than none.
            level.before = level.before if used is None else used
            level.last = level.lowest = None

    def watch(self, found: Found) -> None:
        """What the device holds while the worker is alive."""
        for uuid, occupancy in found.items():
            mine = [occupant for occupant in occupancy.occupants or () if self._is_mine(occupant)]
            self._seen |= {occupant.pid for occupant in mine}
            self.by_pid = self.by_pid or bool(mine)
            if occupancy.used_bytes is not None:
                self._levels[uuid].last = occupancy.used_bytes

    def judge(self, found: Found, now: float) -> Verdict:
        """What the device holds now that the worker is dead, if there was one. The worst of all its GPUs counts."""
        verdicts = [self._judge(uuid, found[uuid], now) for uuid in self.sharers]
        for kind in (Taken, Untold):
            for verdict in verdicts:
                if isinstance(verdict, kind):
                    return verdict
        return Free()

    def _judge(self, uuid: str, occupancy: Occupancy, now: float) -> Verdict:
        for occupant in occupancy.occupants or ():
            if self._is_mine(occupant):
                return Taken(self._where(uuid), f"{_amount(occupant)} of the former worker ({_process(occupant)})")
            if occupant.orphan:
                return Taken(self._where(uuid), f"{_amount(occupant)} of a former pool's worker ({_process(occupant)})")
        if self.by_pid or self._pid is None:
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
        return occupant.pid in self._seen or (self._pid is not None and occupant.group == self._pid)

    def _where(self, uuid: str) -> str:
        return self.label if len(self.sharers) == 1 else f"{self.label} ({uuid})"


def _amount(occupant: Occupant) -> str:
    return _size(occupant.used_bytes) if occupant.used_bytes else "memory"


def _process(occupant: Occupant) -> str:
    return f"pid {occupant.pid}, " + (f"state {occupant.state}" if occupant.state else "which is gone")


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.1f} GiB" if size_bytes >= 2**30 else f"{size_bytes / 2**20:.0f} MiB"
