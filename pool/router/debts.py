"""What the pool owes its clients: an answer to each job, and the memory in which it lies."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from pool.router.arenas import Tenancy

__all__ = ["Debts"]


class Debts:
    """By client and number. The members of a pack are owed with it: the numbers that follow its own."""

    def __init__(self) -> None:
        self._jobs: dict[bytes, dict[int, Tenancy | None]] = {}  # of each client, and where each lies in arenas
        self._packs: dict[bytes, list[tuple[int, int]]] = {}  # of who has some, first and last number, ascending

    def __contains__(self, client: bytes) -> bool:
        """Whether the client waits for anything."""
        return client in self._jobs

    def owes(self, client: bytes, job: int, members: int = 0) -> int | None:
        """The first of these numbers that it owes, a pack's members among them; None if none is."""
        jobs = self._jobs.get(client)
        if jobs is None:
            return None
        if job in jobs:
            return job
        if members:
            for number in range(job + 1, job + members + 1):
                if number in jobs:
                    return number
        if client in self._packs:
            packs = self._packs[client]
            before = bisect_right(packs, job + members, key=_first)
            if before and packs[before - 1][1] >= job:
                return max(job, packs[before - 1][0])
        return None

    def add(self, client: bytes, job: int, tenancy: Tenancy | None, members: int = 0) -> None:
        """`tenancy`: of a job that lies in arenas. REQUIRES that it owes none of these numbers."""
        jobs = self._jobs.get(client)
        if jobs is None:
            jobs = self._jobs[client] = {}
        jobs[job] = tenancy
        if members:
            insort(self._packs.setdefault(client, []), (job, job + members))

    def dissolve(self, client: bytes, pack: int, members: Sequence[int]) -> None:
        """In the place of the pack, each of its members is owed; all of them lie where it lay."""
        tenancy = self._jobs.get(client, {}).get(pack)
        self._parted(client, pack)
        for member in members:
            if tenancy is not None:
                tenancy.hold()
            self.add(client, member, tenancy)
        if tenancy is not None:
            tenancy.shared = True
        self.settle(client, pack)

    def settle(self, client: bytes, job: int, quietly: bool = False) -> bool:
        """Nobody waits for it any more; whether nobody uses its memory either.

        `quietly`: then its client hears of that in another way. Where somebody does, it is told later.
        """
        jobs = self._jobs.get(client)
        if jobs is None:
            return True
        tenancy = jobs.pop(job, None)
        if client in self._packs:
            self._parted(client, job)
        if not jobs:
            del self._jobs[client]
        if tenancy is None:
            return True
        last = tenancy.is_last and not tenancy.shared
        tenancy.quiet = quietly and last
        tenancy.let_go()
        return last

    def forget(self, client: bytes) -> None:
        """The client is gone."""
        self._packs.pop(client, None)
        for tenancy in self._jobs.pop(client, {}).values():
            if tenancy is not None:
                tenancy.quiet = True
                tenancy.let_go()

    def _parted(self, client: bytes, job: int) -> None:
        """If it was a pack, it is none any more."""
        packs = self._packs.get(client, [])
        place = bisect_left(packs, job, key=_first)
        if place < len(packs) and packs[place][0] == job:
            del packs[place]
            if not packs:
                del self._packs[client]


def _first(numbers: tuple[int, int]) -> int:
    return numbers[0]
