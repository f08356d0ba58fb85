"""Where the models of devices that are gone may go, while all others stay where they are. Pure.

A pool that serves does not move what works: only the copies that are lost are placed, largest first, on devices that
have room and no copy yet. Pins are kept: a model that names its devices goes to no other.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from pool.devices import Device
from pool.plan.placement import ModelDemand, readable

__all__ = ["Move", "displace", "homeless"]


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
    may: Callable[[str, int], bool] = lambda model, device: True,  # noqa: ARG005
) -> tuple[Move, ...]:
    """A move for each copy that was on one of the devices `lost`; `placed`: the models of each device, those too.

    `may`: whether a model may go to a device, as far as anything but its memory decides that.

    Guarantees: the same answer every time, no device beyond what it has free, no two copies on one device. Where the
    devices with the least bytes leave more copies without room than the fullest do, the fullest are taken.
    """
    spread = _moves(models, devices, placed, lost, may, tight=False)
    tight = _moves(models, devices, placed, lost, may, tight=True)
    return spread if _left_out(spread) <= _left_out(tight) else tight


def homeless(
    models: Sequence[ModelDemand],
    devices: Sequence[Device],
    placed: Sequence[Collection[str]],
    lost: Collection[int],
    moves: Sequence[Move],
    may: Callable[[str, int], bool] = lambda model, device: True,  # noqa: ARG005
) -> tuple[str, ...]:
    """A line for each copy that goes nowhere: why, what it needs, and what is free of each device after all moves."""
    named = {model.name: model for model in models}
    held = [sum(named[name].memory_bytes or 0 for name in names if name in named) for names in placed]
    homes = [set(names) for names in placed]
    for move in moves:
        if move.to is not None:
            held[move.to] += named[move.model].memory_bytes or 0
            homes[move.to].add(move.model)

    def free(model: str, number: int) -> str:
        if not may(model, number):
            return "cannot take it"
        size = devices[number].free_bytes
        return readable(None if size is None else max(0, size - held[number]))

    lines = []
    for move in moves:
        model = named[move.model]
        if move.to is not None:
            continue
        left = [number for number in range(len(devices)) if number not in lost]
        others = [number for number in left if move.model not in homes[number]]
        if model.devices == "all" or (model.devices == "auto" and left and not others):
            why = "it is on all others"
        elif model.devices != "auto":
            why = "its `devices` name no other that it is not on"
        else:
            there = ", ".join(f"{devices[number].label} {free(model.name, number)}" for number in others) or "none"
            why = f"no other has room for it: it needs {readable(model.memory_bytes)}, free are {there}"
        lines.append(f"model {move.model} is not moved from {devices[move.lost].label}: {why}")
    return tuple(lines)


def _moves(
    models: Sequence[ModelDemand],
    devices: Sequence[Device],
    placed: Sequence[Collection[str]],
    lost: Collection[int],
    may: Callable[[str, int], bool],
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
                and may(model.name, number)
            ]
            to = min(room, key=lambda number: (-held[number] if tight else held[number], number), default=None)
            if to is not None:
                homes[model.name].add(to)
                held[to] += sizes[model.name]
            moves.append(Move(model.name, former, to))
    return tuple(moves)


def _fits(device: Device, held: int, model: ModelDemand) -> bool:
    return device.free_bytes is None or model.memory_bytes is None or held + model.memory_bytes <= device.free_bytes


def _left_out(moves: Sequence[Move]) -> int:
    return sum(move.to is None for move in moves)
