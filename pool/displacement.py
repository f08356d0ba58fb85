"""Where the models of devices that are gone may go, while all others stay where they are. Pure.

A pool that serves does not move what works: only the copies that are lost are placed, largest first, on devices that
have room and no copy yet. Pins are kept: a model that names its devices goes to no other.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pool.devices import Device
from pool.placement import ModelDemand

__all__ = ["Move", "displace", "displaced"]


@dataclass(frozen=True, slots=True)
class Move:
    """`model` was on the device `lost`; `to`: another device, or None where there is none for it."""

    model: str
    lost: int
    to: int | None


def displace(
    models: Sequence[ModelDemand],
    devices: Sequence[Device],
    placed: Sequence[Collection[str]],
    lost: Collection[int],
) -> tuple[Move, ...]:
    """A move for each copy that was on one of the devices `lost`; `placed`: the models of each device, those too.

    Guarantees: the same answer every time, no device beyond what it has free, no two copies on one device. Where the
    devices with the least bytes leave more copies without room than the fullest do, the fullest are taken.
    """
    spread = _moves(models, devices, placed, lost, tight=False)
    tight = _moves(models, devices, placed, lost, tight=True)
    return spread if _homeless(spread) <= _homeless(tight) else tight


def displaced(
    models: Sequence[ModelDemand],
    devices: Sequence[Device],
    placed: Sequence[Collection[str]],
    lost: Collection[int],
) -> tuple[str, ...]:
    """The same in words. Here all are of slots, of which several may be on one device."""
    each = list(dict.fromkeys(devices))
    on_each = [
        {name for slot, names in enumerate(placed) if devices[slot] == device for name in names} for device in each
    ]
    moves = displace(models, each, on_each, {each.index(devices[slot]) for slot in lost})
    named = {model.name: model for model in models}
    return tuple(f"{move.model}: {_told(named[move.model], move, each)}" for move in moves)


def _told(model: ModelDemand, move: Move, devices: Sequence[Device]) -> str:
    if move.to is not None:
        return f"{devices[move.to].label} has room"
    if model.devices == "all":
        return "as it is on all others"
    return "no other has room for it" if model.devices == "auto" else "its `devices` name no other that it is not on"


def _moves(
    models: Sequence[ModelDemand],
    devices: Sequence[Device],
    placed: Sequence[Collection[str]],
    lost: Collection[int],
    *,
    tight: bool,
) -> tuple[Move, ...]:
    sizes = {model.name: model.memory_bytes or 0 for model in models}
    held = [sum(sizes.get(name, 0) for name in names) for names in placed]
    homes = {model.name: {number for number, names in enumerate(placed) if model.name in names} for model in models}
    moves = []
    for model in sorted(models, key=lambda model: -sizes[model.name]):
        for former in sorted(homes[model.name] & set(lost)):
            room = [
                number
                for number, device in enumerate(devices)
                if model.devices == "auto"
                and number not in lost
                and number not in homes[model.name]
                and _fits(device, held[number], model)
            ]
            to = min(room, key=lambda number: (-held[number] if tight else held[number], number), default=None)
            if to is not None:
                homes[model.name].add(to)
                held[to] += sizes[model.name]
            moves.append(Move(model.name, former, to))
    return tuple(moves)


def _fits(device: Device, held: int, model: ModelDemand) -> bool:
    return device.free_bytes is None or model.memory_bytes is None or held + model.memory_bytes <= device.free_bytes


def _homeless(moves: Sequence[Move]) -> int:
    return sum(move.to is None for move in moves)
