"""Which cores each CPU worker is to have: lists as the kernel writes them, and the machine's cores in a good order.

cores of the pool ─► node by node, siblings side by side ─► as many pieces as there are CPU slots
"""

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pool.errors import InvalidConfig

__all__ = ["SYSTEM", "core_list", "in_order", "share_cores", "written"]

SYSTEM = Path("/sys/devices/system")
HIGHEST = 65535


def core_list(text: str) -> tuple[int, ...]:
    """ "0-2,8" is (0, 1, 2, 8), each once and ascending. Raises `ValueError` for anything else, and for no core."""
    cores: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not all(one.isascii() and one.isdigit() for one in ([first, last] if dash else [first])):
            raise ValueError(f"{text!r} is not a list of cores")
        low, high = int(first), int(last or first)
        if not low <= high <= HIGHEST:
            raise ValueError(f"{text!r} is not a list of cores")
        cores.update(range(low, high + 1))
    return tuple(sorted(cores))


def written(cores: Sequence[int]) -> str:
    """The inverse of `core_list`."""
    parts: list[list[int]] = []
    for core in sorted(cores):
        if parts and core == parts[-1][1] + 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def in_order(cores: Collection[int], system: Path = SYSTEM) -> tuple[int, ...]:
    """Those of a NUMA node together, and in it the threads of a core; by number where the kernel does not say."""
    nodes = _nodes(system)

    def place(core: int) -> tuple[int, int, int, int]:
        topology = system / f"cpu/cpu{core}/topology"
        package = _number(topology / "physical_package_id")
        return (nodes.get(core, package), package, _number(topology / "core_id", core), core)

    return tuple(sorted(cores, key=place))


def share_cores(
    cpu_slots: int,
    wanted: Literal["off", "auto"] | Sequence[Sequence[int]],
    allowed: Collection[int],
    system: Path = SYSTEM,
) -> tuple[tuple[int, ...], ...]:
    """The cores of each CPU slot; () for one that is bound to none. `wanted`: as `cpu_affinity` of `[pool]`.

    "auto": pieces whose sizes differ by one at most; where there are more slots than cores, some share one.
    Raises `InvalidConfig` for lists that are not one a slot, or name a core that the pool may not use.
    """
    if isinstance(wanted, str):
        if wanted == "off" or not cpu_slots:
            return ((),) * cpu_slots
        ordered = in_order(allowed, system)
        if len(ordered) < cpu_slots:
            return tuple((ordered[slot % len(ordered)],) for slot in range(cpu_slots))
        ends = [len(ordered) * slot // cpu_slots for slot in range(cpu_slots + 1)]
        return tuple(tuple(sorted(ordered[ends[slot] : ends[slot + 1]])) for slot in range(cpu_slots))
    if len(wanted) != cpu_slots:
        counts = f"{len(wanted)} lists of cores for {cpu_slots} CPU slots"
        raise InvalidConfig(f'[pool] cpu_affinity: {counts}; write one list for each, or "auto"')
    for cores in wanted:
        missing = set(cores) - set(allowed)
        if missing:
            raise InvalidConfig(
                f"[pool] cpu_affinity: {written(cores)!r} has cores that the pool may not use:"
                f" {written(sorted(missing))}; it may use {written(sorted(allowed))}"
            )
    return tuple(tuple(cores) for cores in wanted)


def _nodes(system: Path) -> Mapping[int, int]:
    """The NUMA node of each core that one lists."""
    found: dict[int, int] = {}
    for folder in sorted((system / "node").glob("node[0-9]*")):
        with contextlib.suppress(OSError, ValueError):  # a node of memory alone has an empty list
            found.update(dict.fromkeys(core_list((folder / "cpulist").read_text().strip()), int(folder.name[4:])))
    return found


def _number(file: Path, otherwise: int = 0) -> int:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return otherwise
