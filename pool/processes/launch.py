"""From a slot to what `Popen` needs. Pure: it starts nothing, and neither reads nor changes `os.environ`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pool.devices import Device

__all__ = ["THREAD_BUDGETS", "Launch", "cpu_share", "environ_with", "inherited", "worker_environ", "worker_launch"]

# The pool's own, given to it by systemd: a worker that used them would answer for the pool.
_NOT_INHERITED = frozenset({"NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"})
_NOT_INHERITED_PREFIX = "WATCHDOG_"

# Each of these libraries starts a thread a core unless it is told, so four CPU workers would fight over the
# machine. They read them when they are loaded, which is before any message of the pool arrives.
THREAD_BUDGETS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)


@dataclass(frozen=True, slots=True)
class Launch:
    """The command line and the whole environment of one worker process."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def worker_launch(
    *,
    slot: int,
    incarnation: int,
    device: Device,
    endpoint: str,
    link_fd: int,
    stacks_fd: int | None = None,
    parent_pid: int,
    cpu_share: int,
    cores: Sequence[int] = (),
    environ: Mapping[str, str],
    python: str,
) -> Launch:
    """How to start the worker of `slot`.

    The environment is a copy of `environ` in which CUDA shows exactly the GPUs of `device`, by uuid, and none
    for the CPU. A CPU worker has a budget of `cpu_share` threads, or of one for each of the `cores` that it binds
    itself to, unless the user's own environment sets one; a GPU worker, which mostly waits for its device, has
    none. `link_fd` is its end of the socketpair, `stacks_fd` the file for its stacks, if there is one: the caller
    passes both on with `pass_fds`. The worker compares `--visible-devices` with what it finds.
    """
    visible = ",".join(device.uuids)
    argv = (
        python,
        # `-P`: the working directory must not be able to stand in for `workers` or `tensorflow`.
        *("-P", "-m", "workers"),
        *("--endpoint", endpoint),
        *("--slot", str(slot)),
        *("--incarnation", str(incarnation)),
        *("--link-fd", str(link_fd)),
        *("--parent", str(parent_pid)),
        *("--visible-devices", visible),
        *(() if stacks_fd is None else ("--stacks-fd", str(stacks_fd))),
        *(("--cores", ",".join(map(str, cores))) if cores else ()),
    )
    return Launch(argv, worker_environ(device, len(cores) or cpu_share, environ))


def worker_environ(device: Device, threads: int, environ: Mapping[str, str]) -> dict[str, str]:
    """A copy of `environ` in which CUDA shows exactly the GPUs of `device`. `threads`: the budget of a CPU worker."""
    env = environ_with(device.uuids, environ)
    if device.kind == "cpu":
        for key in THREAD_BUDGETS:
            env.setdefault(key, str(threads))
    return env


def environ_with(uuids: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """A copy of `environ` in which CUDA shows exactly these GPUs, and the library decides on its threads."""
    env = inherited(environ)
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    env["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)
    env["PYTHONUNBUFFERED"] = "1"
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    return env


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """What any process of the pool's gets of its environment."""
    return {
        key: value
        for key, value in environ.items()
        if key not in _NOT_INHERITED and not key.startswith(_NOT_INHERITED_PREFIX)
    }


def cpu_share(cores: int, cpu_slots: int) -> int:
    """How many threads each of the CPU workers may have; at least one."""
    return max(1, cores // max(1, cpu_slots))
