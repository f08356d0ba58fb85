"""What a worker makes sure of before anything else is imported: that it is the process the pool meant it to be."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from pool.wire import lifeline

__all__ = ["Assignment", "OtherCommandLine", "WrongEnvironment", "bind", "check", "die_with_parent", "parse"]


class WrongEnvironment(Exception):
    """The process is not what the pool started; one line says how."""


class OtherCommandLine(Exception):
    """It is not the one that a pool of this release starts its workers with; one line says why."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """The command line: where the pool is, and who this process is to it."""

    endpoint: str
    slot: int
    incarnation: int
    link_fd: int
    parent: int
    visible_devices: str
    stacks_fd: int | None = None
    """Where the stacks go that the pool asks for; None where nobody can ask."""
    cores: str = ""
    """Those to be bound to, with commas between them; none: as the pool is."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Only a pool of another release says what this one does not understand."""
        raise OtherCommandLine(message)


def parse(argv: Sequence[str]) -> Assignment:
    """Raises `OtherCommandLine`."""
    parser = _Parser(prog="workers", description="A worker. `pool start` starts it; never start it by hand.")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--slot", type=int, required=True)
    parser.add_argument("--incarnation", type=int, required=True)
    parser.add_argument("--link-fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--visible-devices", required=True)
    parser.add_argument("--stacks-fd", type=int)
    parser.add_argument("--cores", default="")
    return Assignment(**vars(parser.parse_args(argv)))


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when the pool dies, by the kernel, even while a lane is inside TensorFlow."""
    try:
        lifeline.die_with_parent(parent)
    except OSError as error:
        raise WrongEnvironment(str(error)) from None


def bind(cores: str) -> None:
    """To these cores, before anything starts a thread or counts what there is. "" leaves everything as it is."""
    if not cores:
        return
    try:
        os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
    except (OSError, ValueError) as error:
        raise WrongEnvironment(f"cannot bind the worker to the cores {cores}: {error}") from None


def check(assignment: Assignment, environ: Mapping[str, str]) -> None:
    """Raises `WrongEnvironment` unless this process may import TensorFlow and will see its own device alone."""
    if "tensorflow" in sys.modules:
        raise WrongEnvironment("tensorflow was imported before the worker chose its device")
    found = environ.get("CUDA_VISIBLE_DEVICES")
    if found != assignment.visible_devices:
        raise WrongEnvironment(
            f"CUDA_VISIBLE_DEVICES is {found!r}, but the pool ordered {assignment.visible_devices!r}"
        )
    if environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        raise WrongEnvironment("CUDA_DEVICE_ORDER is not PCI_BUS_ID")
