"""A running plan with the models of devices that are gone on others, as their guests. Starts and reads nothing.

    at home ─ the device is gone: `take_in` ─► a guest elsewhere ─ a worker is READY at home: `go_home` ─► at home

Nothing is taken from the device that is gone: a worker that comes up there one day has what it had.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pool.devices import Device
from pool.errors import InvalidConfig
from pool.plan.displacement import Move, displace, homeless
from pool.plan.plan import Guest, Plan
from pool.plan.planning import share_models
from pool.plan.shares import Share

if TYPE_CHECKING:
    from pool.config import Settings

__all__ = ["go_home", "keep_guests", "take_in"]


def take_in(
    settings: "Settings", running: Plan, lost: Collection[Device], shut: Collection[Device]
) -> tuple[Plan, tuple[str, ...]]:
    """The same plan with a guest more for each copy that has its place on a device of `lost`, and none elsewhere yet.

    None goes to those of `shut`. Also a line for each copy that goes nowhere.
    """
    devices = tuple(dict.fromkeys(running.devices))
    placed = _placed(running, devices)
    away = {(guest.home, guest.model) for guest in running.guests}
    open_to = [
        [name for name in names if (device, name) not in away] if device in lost else names
        for device, names in zip(devices, placed, strict=True)
    ]

    def may(model: str, number: int) -> bool:
        at = devices[number]
        return at not in shut and _with(settings, running, devices, placed, [(model, number)]) is not None

    gone = {number for number, device in enumerate(devices) if device in lost}
    moves: list[Move] = []
    shares = running.shares
    for move in displace(running.demands, devices, open_to, gone, may):
        done = [(each.model, each.to) for each in moves if each.to is not None]
        fit = None if move.to is None else _with(settings, running, devices, placed, [*done, (move.model, move.to)])
        shares = fit or shares
        moves.append(move if fit is not None else replace(move, to=None))
    guests = tuple(Guest(move.model, devices[move.lost], devices[move.to]) for move in moves if move.to is not None)
    plan = replace(running, shares=shares, guests=(*running.guests, *guests)) if guests else running
    return plan, homeless(running.demands, devices, placed, gone, moves, may)


def keep_guests(settings: "Settings", plan: Plan, guests: Sequence[Guest]) -> Plan:
    """Another plan for the same devices, with those guests whose models are still placed at home.

    Raises `InvalidConfig` where one of them cannot stay.
    """
    devices = tuple(dict.fromkeys(plan.devices))
    for guest in guests:
        placed = _placed(plan, devices)
        if guest.model not in placed[devices.index(guest.home)] or guest.model in placed[devices.index(guest.at)]:
            continue
        shares = _with(settings, plan, devices, placed, [(guest.model, devices.index(guest.at))])
        if shares is None:
            raise InvalidConfig(
                f"model {guest.model} is on {guest.at.label} while {guest.home.label} is gone, and could not stay;"
                " bring that device back with `pool restart SLOT` first, or leave its options as they are"
            )
        plan = replace(plan, shares=shares, guests=(*plan.guests, guest))
    return plan


def go_home(plan: Plan, home: Device, models: Collection[str]) -> Plan:
    """The same plan without the guests of these models whose home it is, and without those that had to go on."""
    gone: list[Guest] = []
    ends = [home]
    while ends:
        end = ends.pop()
        left = [guest for guest in plan.guests if guest.home == end and guest.model in models and guest not in gone]
        gone += left
        ends += [guest.at for guest in left]
    return plan.at_home(gone) if gone else plan


def _placed(plan: Plan, devices: Sequence[Device]) -> list[list[str]]:
    """The models of each device, guests too."""
    there = [{name for share in plan.shares if share.device == device for name in share.models} for device in devices]
    return [[model.name for model in plan.models if model.name in names] for names in there]


def _with(
    settings: "Settings",
    plan: Plan,
    devices: Sequence[Device],
    placed: Sequence[Sequence[str]],
    more: Sequence[tuple[str, int]],
) -> tuple[Share, ...] | None:
    """The slots with these models beside the others; None where that takes other slots, or more than one may take."""
    after = [[*names, *(model for model, at in more if at == number)] for number, names in enumerate(placed)]
    try:
        shares = share_models(settings, devices, after, plan.sizes)
    except InvalidConfig:
        return None
    same = [share.device for share in shares] == [share.device for share in plan.shares]
    kept = same and all(
        set(former.models) <= set(latter.models) for former, latter in zip(plan.shares, shares, strict=True)
    )
    return shares if kept else None
