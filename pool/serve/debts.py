"""What the pool owes its clients: an answer to each job, and the memory in which it lies."""

from pool.serve.arenas import Tenancy

__all__ = ["Debts"]


class Debts:
    """By client and number."""

    def __init__(self) -> None:
        self._jobs: dict[bytes, dict[int, Tenancy | None]] = {}  # of each client, and where each lies in arenas

    def __contains__(self, client: bytes) -> bool:
        """Whether the client waits for anything."""
        return bool(self._jobs.get(client))

    def of(self, client: bytes) -> dict[int, Tenancy | None]:
        """The client's jobs, until it is gone: the caller adds to them, with the tenancy of one that lies in arenas."""
        if client not in self._jobs:
            self._jobs[client] = {}
        return self._jobs[client]

    def settle(self, client: bytes, job: int, quietly: bool = False) -> bool:
        """Nobody waits for it any more; whether nobody uses its memory either.

        `quietly`: then its client hears of that in another way. Where somebody does, it is told later.
        """
        jobs = self._jobs.get(client)
        if jobs is None:
            return True
        tenancy = jobs.pop(job, None)
        if tenancy is None:
            return True
        last = tenancy.is_last
        tenancy.quiet = quietly and last
        tenancy.let_go()
        return last

    def forget(self, client: bytes) -> None:
        """The client is gone."""
        for tenancy in self._jobs.pop(client, {}).values():
            if tenancy is not None:
                tenancy.quiet = True
                tenancy.let_go()
