"""Whether a slot's GPUs are free of its former workers, or have room for one more. Pure: it is handed what NVML told,
and the time.

By pid, where NVML's pids are those of this process: that is so once a worker of the slot was seen in the list. Where
they are not (a container, some MIG set-ups), by the device's used bytes: they must come back near the level before the
worker came. That level moves with what others do, so it is also enough that half of what came with the worker (a
slot's share of it, where several slots are on the device) has gone, and that no more of it is going.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pool.devices.nvml import Occupancy, Occupant
from pool.wire.device_memory import DeviceWait, Level
from pool.wire.exits import Exit
from pool.wire.sizes import readable
from workers.backend import NotFree

__all__ = ["Former", "Found", "Free", "Lost", "Taken", "Untold", "Verdict"]

Found = Mapping[str, Occupancy]  # by uuid

SLACK_BYTES = 256 << 20  # a context of another process, or what the driver itself takes and gives
SLACK_SHARE = 0.05  # of what the worker had taken
ENOUGH_SHARE = 0.5  # of what the worker had taken; a driver frees a dead process's memory whole, or not yet
SETTLED_S = 3.0  # for so long nothing more has gone
ROOM_SHARE = 0.1  # of what the worker holds, that must be free beyond it for a second one: loading may take more
ROOM_BYTES = 512 << 20  # and this at least: a context, and what the libraries take


@dataclass(frozen=True, slots=True)
class Free:
    """Nothing of a former worker is left."""


@dataclass(frozen=True, slots=True)
class Taken:
    """`what` is in use on the device `where`, and of former workers as far as can be seen."""

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


class Former:
    """A slot's workers before this one, by what they have said of themselves: the dead, and those beside it."""

    def __init__(self, wait: DeviceWait) -> None:
        self._label, self._sharers = wait.label, wait.sharers
        told = (*wait.former, *wait.beside)
        self.listed = any(held.listed for held in told)
        """Whether NVML was seen to list one of them: then who is not in its list is gone."""
        self.told = self.listed or any(held.levels_known for held in told)
        """Whether NVML ever told anything of these devices."""
        # The last one's count.
        self._levels = {uuid: held.levels[uuid] for held in told for uuid in wait.sharers if uuid in held.levels}
        self._dead = frozenset(pid for held in wait.former for pid in held.pids)
        self._alive = frozenset(pid for held in wait.beside for pid in held.pids)
        self._course: dict[str, tuple[int, int, float]] = {}  # by uuid: the first bytes judged, the fewest, and when

    def level(self, found: Found) -> dict[str, Level]:
        """What each device holds just before this worker comes; beside another one, what it held before that one."""
        levels = {}
        for uuid in self._sharers:
            used = found[uuid].used_bytes if uuid in found and not self._alive else None
            # An older level, of before an earlier worker, is better than none.
            levels[uuid] = Level(self._levels.get(uuid, Level()).before if used is None else used)
        return levels

    def room(self, found: Found) -> str:
        """That this worker has room beside the one that is alive: as much as that holds, and a margin. In numbers.

        Raises `NotFree` where it has not, or where that is not known.
        """
        return "; ".join(self._room(uuid, found[uuid]) for uuid in self._sharers)

    def _room(self, uuid: str, occupancy: Occupancy) -> str:
        where, held = self._where(uuid), occupancy.bytes_of(self._alive)
        if occupancy.occupants is None or occupancy.free_bytes is None:
            raise NotFree(Exit.NO_ROOM, f"the free memory of {where} is not known: {occupancy.trouble}")
        if not held:
            raise NotFree(
                Exit.NO_ROOM, f"the memory of its worker on {where} is not known: NVML does not list the worker"
            )
        text = f"{where} has {readable(occupancy.free_bytes)} free, and its worker holds {readable(held)}"
        if occupancy.free_bytes < held + max(ROOM_BYTES, held * ROOM_SHARE):
            raise NotFree(Exit.NO_ROOM, text)
        return text

    def judge(self, found: Found, now: float) -> Verdict:
        """What the devices hold of the dead, if there were any. The worst of all its GPUs counts."""
        verdicts = [self._judge(uuid, found[uuid], now) for uuid in self._sharers]
        for kind in (Lost, Taken, Untold):
            for verdict in verdicts:
                if isinstance(verdict, kind):
                    return verdict
        return Free()

    def _judge(self, uuid: str, occupancy: Occupancy, now: float) -> Verdict:
        if occupancy.lost:
            return Lost(self._where(uuid), occupancy.trouble)
        if left := [text for occupant in occupancy.occupants or () if (text := self._left(occupant))]:
            return Taken(self._where(uuid), " and ".join(left))
        if self.listed or not self._dead:
            # Strangers may keep what they have.
            told = occupancy.occupants is not None or (not self.listed and occupancy.used_bytes is not None)
            return Free() if told else Untold(occupancy.trouble)
        if occupancy.used_bytes is None:
            return Untold(occupancy.trouble)
        if self._alive:
            return Untold(
                f"NVML does not list the workers of {self._where(uuid)}, and one of them is alive", lasting=True
            )
        return self._judge_level(uuid, occupancy.used_bytes, now)

    def _judge_level(self, uuid: str, used: int, now: float) -> Verdict:
        level = self._levels.get(uuid, Level())
        if level.before is None:
            return Untold(
                f"the memory in use on {self._where(uuid)} before the former worker is not known", lasting=True
            )
        first, lowest, lowest_at = self._course.get(uuid, (used, used, now))
        if used < lowest:
            lowest, lowest_at = used, now
        self._course[uuid] = first, lowest, lowest_at
        last = first if level.last is None else level.last  # it died before it looked
        taken = max(0, last - level.before)
        if used <= level.before + max(SLACK_BYTES, taken * SLACK_SHARE):
            return Free()
        if now - lowest_at >= SETTLED_S and last - used > taken / self._sharers[uuid] * ENOUGH_SHARE:
            return Free()
        return Taken(
            self._where(uuid), f"{readable(used - level.before)} more in use than before the former worker came"
        )

    def _left(self, occupant: Occupant) -> str:
        """What it has of a former worker; "" for a process that may keep what it has."""
        whose = (
            "the former worker" if occupant.is_of(self._dead) else "a former pool's worker" if occupant.orphan else ""
        )
        if not whose:
            return ""
        amount = readable(occupant.used_bytes) if occupant.used_bytes else "memory"
        state = f"state {occupant.state}" if occupant.state else "which is gone"
        return f"{amount} of {whose} (pid {occupant.pid}, {state})"

    def _where(self, uuid: str) -> str:
        return self._label if len(self._sharers) == 1 else f"{self._label} ({uuid})"
