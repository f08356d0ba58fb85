"""What a command's failure is to whoever called it: its exit status."""

from pool.errors import InvalidConfig, PoolError
from pool.placement import DevicesOccupied

__all__ = ["NoSlotLeft", "exit_status"]


class NoSlotLeft(PoolError):
    """`pool start` has ended because every slot is FATAL."""


def exit_status(error: Exception) -> int:
    """2: the configuration is refused, and would be again; 3: no slot is left that could serve; 1: anything else."""
    if isinstance(error, InvalidConfig) and not isinstance(error, DevicesOccupied):
        return 2
    return 3 if isinstance(error, NoSlotLeft) else 1
