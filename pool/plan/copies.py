"""Further copies of models, on devices that would have none: a pool uses the GPUs that it is given. Pure.

what has to be placed ─► a device without a model ─► the model with the fewest copies for its weight ─► … none is left,
                                                                                                  or nothing fits there

A further copy never shares a device, and gives way to whatever has to be there. In a pool with GPUs it goes to no CPU:
jobs would take far longer there than in the copies beside it.
"""

from collections.abc import Collection, Mapping, Sequence

from pool.devices import Device
from pool.plan.placement import ModelDemand, ranks, shown

__all__ = ["fill", "why_no_more"]

_There = Mapping[str, Collection[int]]


def fill(
    models: Sequence[ModelDemand],
    placed: Sequence[Sequence[str]],
    devices: Sequence[Device],
    there: _There | None = None,
    lost: Collection[int] = (),
) -> dict[str, tuple[int, ...]]:
    """By model all its slots: first those in `placed`, which has the names of each slot, then the further ones.

    `there`: the slots of each model that is served already. The numbers of copies are the same without it, unless
    sizes forbid; a model keeps the places that it may. Slots that are `lost` come last.

    Guarantees: the same answer in whatever order the models are; none moves if nothing has changed.
    """
    found = _filled(models, placed, devices, there or {}, lost)
    for _ in placed:
        # A place that a model keeps may be the only one for another, which has its turn once the first has others too.
        again = _filled(models, placed, devices, found, lost)
        if again == found:
            break
        found = again
    return found


def _filled(
    models: Sequence[ModelDemand],
    placed: Sequence[Sequence[str]],
    devices: Sequence[Device],
    there: _There,
    lost: Collection[int],
) -> dict[str, tuple[int, ...]]:
    rank = ranks(devices)
    slots = {model.name: [n for n, names in enumerate(placed) if model.name in names] for model in models}
    free = {slot for slot, names in enumerate(placed) if not names and devices[slot].kind == _kind(devices)}
    own = {model.name: free & {*there.get(model.name, ())} for model in models}
    copied = [model for model in models if model.replicas is None]

    def turn(model: ModelDemand, copies: int) -> tuple[float, int, str]:
        """When its next copy comes, if it has so many."""
        return (copies / model.weight, -(model.memory_bytes or 0), model.name)

    def missed(slot: int) -> tuple[float, int, str]:
        """When the model that is there would want it again, as the last of its places; never, if there is none."""
        owners = (each for each in copied if slot in own[each.name])
        turns = (turn(each, len({*slots[each.name], *own[each.name]}) - 1) for each in owners)
        return min(turns, default=(float("inf"), 0, ""))

    while able := [(model, room) for model in copied if (room := [n for n in free if _fits(model, devices[n])])]:
        # Of those whose turn it is, one that has a place there already.
        model, room = min(
            able,
            key=lambda each: (
                len(slots[each[0].name]) / each[0].weight,
                own[each[0].name].isdisjoint(each[1]),
                turn(each[0], 0),
            ),
        )
        slot = max(room, key=lambda n: (n in own[model.name], n not in lost, missed(n), -rank[n]))
        slots[model.name].append(slot)
        free.remove(slot)
        for mine in own.values():
            mine.discard(slot)
    return {name: (*numbers[:1], *sorted(numbers[1:])) for name, numbers in slots.items()}


def why_no_more(model: ModelDemand, slots: Collection[int], devices: Sequence[Device], empty: Collection[int]) -> str:
    """Why a model has no more copies than it has. `empty`: the slots that have no model."""
    if len(slots) == len(devices):
        return "it is on every device"
    if model.devices != "auto":
        return "its `devices` name these"
    if model.replicas is not None:
        return f"`replicas` = {model.replicas}"
    usable = [devices[slot].free_bytes or 0 for slot in empty if devices[slot].kind == _kind(devices)]
    if not usable:
        return f"every {_kind(devices).upper()} has a model"
    needs = f"it needs {shown(model.memory_bytes)}"
    return f"{needs}, and devices without a model have {shown(max(usable))} at most"


def _kind(devices: Sequence[Device]) -> str:
    """Of the devices that further copies go to."""
    return "gpu" if any(device.kind == "gpu" for device in devices) else "cpu"


def _fits(model: ModelDemand, device: Device) -> bool:
    free = device.free_bytes
    return free is None or model.memory_bytes is None or model.memory_bytes <= free
