"""What a command's failure is to whoever called it: its exit status."""

from pool.errors import InvalidConfig, PoolError
from pool.plan import DevicesOccupied

__all__ = ["CommandFailed", "NoSlotLeft", "OwnFault", "exit_status"]


class CommandFailed(PoolError):
    """A command could not do what it was asked to."""


class NoSlotLeft(PoolError):
    """`pool start` has ended because every slot is FATAL."""


class OwnFault(PoolError):
    """`pool start` has ended by a fault of its own; its log says where the report is."""


def exit_status(error: Exception) -> int:
    """What whoever called the command may do next.

    2: the configuration is refused, and would be again; 3: no slot could serve, or not every model; 4: the pool broke
    down by a fault of its own, and may be started again; 1: anything else.
    """
    if isinstance(error, InvalidConfig) and not isinstance(error, DevicesOccupied):
        return 2
    if isinstance(error, OwnFault):
        return 4
    return 3 if isinstance(error, NoSlotLeft) else 1
