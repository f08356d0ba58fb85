"""When what is due: instants in heaps, whatever they are for.

Instants on the monotonic clock come in, by key or with a function to call. Out goes what is due, and the next instant.
`Timers` never looks at a clock; `Alarms` is given one.
"""

from pool.clock.alarms import Alarm, Alarms
from pool.clock.timers import Timers

__all__ = ["Alarm", "Alarms", "Timers"]
