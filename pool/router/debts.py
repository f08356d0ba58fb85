"""What the pool owes its clients: an answer to each job, and the memory in which it lies."""

from collections.abc import Sequence

from pool.router.arenas import Tenancy

__all__ = ["Debts"]


class Debts:
    def __init__(self) -> None:
        self._jobs: dict[bytes, set[int]] = {}
        self._tenancies: dict[tuple[bytes, int], Tenancy] = {}

    def __contains__(self, client: bytes) -> bool:
        """Whether the client waits for anything."""
        return client in self._jobs

    def owes(self, client: bytes, job: int) -> bool:
        return job in self._jobs.get(client, ())

    def add(self, client: bytes, job: int, tenancy: Tenancy | None) -> None:
        """`tenancy`: of a job that lies in arenas."""
        self._jobs.setdefault(client, set()).add(job)
        if tenancy is not None:
            self._tenancies[client, job] = tenancy

    def dissolve(self, client: bytes, pack: int, members: Sequence[int]) -> None:
        """In the place of the pack, each of its members is owed; all of them lie where it lay."""
        tenancy = self._tenancies.get((client, pack))
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
        if jobs is not None:
            jobs.discard(job)
            if not jobs:
                del self._jobs[client]
        tenancy = self._tenancies.pop((client, job), None)
        if tenancy is None:
            return True
        last = tenancy.is_last and not tenancy.shared
        tenancy.quiet = quietly and last
        tenancy.let_go()
        return last

    def forget(self, client: bytes) -> None:
        """The client is gone."""
        for job in self._jobs.pop(client, ()):
            if (tenancy := self._tenancies.pop((client, job), None)) is not None:
                tenancy.quiet = True
                tenancy.let_go()
