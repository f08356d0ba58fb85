"""Where the models of devices that are gone are served meanwhile, while all others stay. Pure.

    at home ─ its device is gone ─► served elsewhere, or told that there is no place ─ a slot serves at home ─► at home

Only the copies that are lost are placed: failovers that are there already where they are, then the largest first, on
devices that have room and no copy yet. Pins are kept: a model that names its devices goes to no other. Nothing is taken
from the device that is gone, nor from a host that is gone: a worker that comes up there one day has what it had.

Of a model with further copies (`pool.plan.copies`) one is placed, once none serves. Where nothing else has room, a
further copy of another model gives way until the device is back.
"""

from collections.abc import Callable, Collection, Sequence

from pool.devices import Device
from pool.errors import InvalidConfig
from pool.plan.placement import ModelDemand, shown
from pool.plan.shares import Share
from pool.plan.world import Failover, Home, World

__all__ = ["fail_over"]

ShareOut = Callable[[Sequence[Sequence[str]]], tuple[Share, ...]]


def fail_over(
    world: World, homes: Collection[Home], placed: Sequence[Sequence[str]], share_out: ShareOut
) -> tuple[tuple[Share, ...], tuple[Failover, ...], tuple[str, ...]]:
    """The slots with all failovers, what they are, and a line for each copy that goes nowhere.

    `placed`: the models of each device, at home; `share_out`: the slots of such a placing; raises `InvalidConfig`.

    Guarantees: the same answer every time, no device beyond what it has free, no two copies on one device. Where the
    devices with the least bytes leave more copies without room than the fullest do, the fullest are taken.
    """
    ways = [_Moves(world, homes, placed, share_out, tight=tight) for tight in (False, True)]
    best = min(ways, key=lambda way: len(way.left_out))
    return best.shares, tuple(best.failovers), tuple(best.why_not(*each) for each in best.left_out)


class _Moves:
    def __init__(
        self,
        world: World,
        homes: Collection[Home],
        placed: Sequence[Sequence[str]],
        share_out: ShareOut,
        *,
        tight: bool,
    ) -> None:
        self._world, self._share_out = world, share_out
        self._devices = devices = world.here.devices
        self._sizes = {home.demand.name: home.demand.memory_bytes or 0 for home in homes}
        self._further = {
            (home.demand.name, number)
            for home in homes
            if home.demand.replicas is None
            for number in home.devices[home.demand.required :]
        }
        self._placed = [list(names) for names in placed]
        self._gone, self._shut = (
            {devices.index(world.slots[slot]) for slot in slots} for slots in (world.lost, world.shut)
        )
        self.shares = share_out(placed)
        self.failovers: list[Failover] = []
        self.left_out: list[tuple[ModelDemand, Device]] = []
        hosts = {(failover.model, failover.home): devices.index(failover.at) for failover in world.failovers}
        lost = [
            (home.demand, device)
            for home in sorted(homes, key=lambda home: -self._sizes[home.demand.name])
            for device in self._lost(home, hosts)
        ]
        homeless = []
        for demand, home in lost:
            # A failover stays where it is; on a host that is gone it is a copy that is lost there.
            while (host := hosts.get((demand.name, home))) is not None and self._may(demand, home, host):
                self._put(demand, home, host)
                home = devices[host]
                if self._is_served(demand.name, home):
                    break
            else:
                homeless.append((demand, home))
        for demand, home in homeless:
            left = (number for number in range(len(devices)) if number not in self._gone | self._shut)
            if room := [number for number in left if self._may(demand, home, number)]:
                ways = {
                    n: (len(self._giving(demand, n) or ()), -self._held(n) if tight else self._held(n)) for n in room
                }
                self._put(demand, home, min(room, key=lambda n: (ways[n], n)))
            else:
                self.left_out.append((demand, home))

    def _lost(self, home: Home, hosts: Collection[tuple[str, Device]]) -> list[Device]:
        """Where copies were that are to be served elsewhere."""
        name, at = home.demand.name, [self._devices[number] for number in sorted(home.devices)]
        lost = [device for device in at if not self._is_served(name, device)]
        if home.demand.replicas is not None:
            return lost
        if any(self._devices.index(device) not in self._shut for device in at if device not in lost):
            return []
        return sorted(lost, key=lambda device: (name, device) not in hosts)[:1]

    def _may(self, demand: ModelDemand, home: Device, number: int) -> bool:
        return (
            demand.devices == "auto"
            and (demand.name, home) not in self._world.unfit
            and demand.name not in self._placed[number]
            and (giving := self._giving(demand, number)) is not None
            and self._with(demand.name, number, giving) is not None
        )

    def _giving(self, demand: ModelDemand, number: int) -> list[str] | None:
        """The further copies that give way to it there; None: it has no room even so."""
        free = self._devices[number].free_bytes
        if free is None or demand.memory_bytes is None:
            return []
        over = self._held(number) + demand.memory_bytes - free
        giving: list[str] = []
        for name in self._placed[number]:
            if over > 0 and (name, number) in self._further:
                giving.append(name)
                over -= self._sizes[name]
        return None if over > 0 else giving

    def _put(self, demand: ModelDemand, home: Device, number: int) -> None:
        giving = self._giving(demand, number) or []
        self.shares = self._with(demand.name, number, giving) or self.shares
        self._placed[number] = [*(name for name in self._placed[number] if name not in giving), demand.name]
        self.failovers.append(Failover(demand.name, home, self._devices[number]))

    def _held(self, number: int) -> int:
        return sum(self._sizes[name] for name in self._placed[number])

    def _is_served(self, name: str, device: Device) -> bool:
        return any(
            share.device == device and name in share.models and slot not in self._world.lost
            for slot, share in enumerate(self.shares)
        )

    def _with(self, name: str, number: int, giving: Collection[str] = ()) -> tuple[Share, ...] | None:
        """The slots with this model beside the others, or in the place of those that are `giving` way.

        None where that takes other slots, or more than may be.
        """
        placed = [*self._placed]
        placed[number] = [*(each for each in placed[number] if each not in giving), name]
        try:
            shares = self._share_out(placed)
        except InvalidConfig:
            return None
        if [share.device for share in shares] != [share.device for share in self.shares]:
            return None
        stay = all(
            set(before.models) - set(after.models) <= (set(giving) if after.device == self._devices[number] else set())
            for before, after in zip(self.shares, shares, strict=True)
        )
        return shares if stay else None

    def why_not(self, demand: ModelDemand, home: Device) -> str:
        """Why a copy goes nowhere, what it needs, and what is free of each device after all moves."""
        if (why := self._world.unfit.get((demand.name, home))) is not None:
            return why
        left = [number for number in range(len(self._devices)) if number not in self._gone]
        others = [number for number in left if demand.name not in self._placed[number]]
        if demand.devices == "all" or (demand.devices == "auto" and left and not others):
            why = "all other devices already have it"
        elif demand.devices != "auto":
            why = "its `devices` name no other free device"
        else:
            there = ", ".join(f"{self._devices[n].label} {self._free(demand.name, n)}" for n in others) or "none"
            why = f"no other device has room: it needs {shown(demand.memory_bytes)}; free: {there}"
        return f"model {demand.name} cannot move from {home.label}: {why}"

    def _free(self, name: str, number: int) -> str:
        if number in self._shut or self._with(name, number) is None:
            return "cannot take it"
        size = self._devices[number].free_bytes
        return shown(None if size is None else max(0, size - self._held(number)))
