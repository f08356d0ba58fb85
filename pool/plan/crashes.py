"""Workers that crash, hang or run out of memory while they load: when one model is to blame for it."""

from dataclasses import replace

from pool.core.events import Death

__all__ = ["Crashes"]

ENOUGH = 3  # in a row at the same model: fewer may be a neighbour's, which took the machine's memory


class Crashes:
    """Of slots that have not served yet."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[str | None, int]] = {}  # by slot: at which model, how often in a row

    def judge(self, slot: int, death: Death, words: str, most: int) -> Death:
        """The death of a slot's worker; after enough of them at one model, as of a worker that could not load it.

        `words`: the death in words. `most`: deaths in a row before the slot is given up.
        """
        before, times = self._last.get(slot, (None, 0))
        times = times + 1 if death.loading == before else 1
        self._last[slot] = (death.loading, times)
        if not death.restartable or death.loading is None or times < min(ENOUGH, most):
            return death
        text = f"model {death.loading}: {words}, {times} times in a row while it was loaded"
        return replace(death, text=text, restartable=False, blamed=death.loading)
