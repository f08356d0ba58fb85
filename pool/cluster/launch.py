"""How the pool of a machine is started from inside an actor. Pure: it starts nothing, and changes no environment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pool.devices import Gpu, visible_gpus
from pool.errors import InvalidConfig

__all__ = ["Launch", "pool_launch"]

# systemd's word to Ray's own service, and where a client would look for another pool.
_NOT_INHERITED = ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC", "POOL_ENDPOINT")
_BUDGET = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class Launch:
    argv: tuple[str, ...]
    env: Mapping[str, str]


def pool_launch(
    *,
    config: str | None,
    name: str,
    reserved: Sequence[str],
    gpus: Sequence[Gpu],
    environ: Mapping[str, str],
    given: Mapping[str, str],
    lifeline: int,
    python: str,
) -> Launch:
    """`reserved`: the GPUs that Ray gave the actor, by number or uuid. `gpus`: all of the machine, in PCI order.

    `environ`: the actor's. `given`: what it was started with: Ray sets `OMP_NUM_THREADS` to 1 afterwards, which would
    give each worker one thread. `lifeline`: the socket that ends the pool with the actor.
    Raises `InvalidConfig` where Ray counts GPUs that the driver does not list.
    """
    env = {key: value for key, value in environ.items() if key not in (*_NOT_INHERITED, _BUDGET)}
    if _BUDGET in given:
        env[_BUDGET] = given[_BUDGET]
    # Ray leaves this alone for an actor without GPUs, which would then see all of them.
    env["CUDA_VISIBLE_DEVICES"] = _uuids(reserved, gpus)
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    file = () if config is None else ("--config", config)
    return Launch((python, "-P", "-m", "pool", "start", *file, "--name", name, "--lifeline", str(lifeline)), env)


def _uuids(reserved: Sequence[str], gpus: Sequence[Gpu]) -> str:
    """Ray counts by number, and CUDA counts the fastest first: a uuid means the same to everybody."""
    if not gpus:
        return ",".join(reserved)  # the pool finds none, and says why
    found = visible_gpus(gpus, ",".join(reserved), "PCI_BUS_ID").gpus if reserved else ()
    if len(found) < len(reserved):
        listed = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
        raise InvalidConfig(f"Ray reserved the GPUs {', '.join(reserved)}, but the driver lists {listed}")
    return ",".join(gpu.uuid for gpu in found)
