"""What all connections of one client hold together, and what it may hold: its account.

    route: │ 8 bytes: the connection's number │ the account's name │

So a connection tells whose it is with each of its jobs. An account has the bounds that the policy has for its name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pool.core.actions import JobFailed
from pool.core.policy import AccountPolicy, Policy
from pool.wire.faults import Fault
from pool.wire.sizes import exceeds, readable, rounded

__all__ = ["NUMBER_BYTES", "Account", "Accounts"]

NUMBER_BYTES = 8
MOST_IDLE = 4096  # accounts that are kept while nothing of theirs is in the pool


@dataclass(slots=True, eq=False)
class Account:
    """`policy` None: each of its connections is a client by itself. `weight`: as the policy says.

    `held`: jobs that are not answered yet, a chunk counts for its weight; `taken`: all since the start that were
    accepted; `device_s`: the device time that they took. `Backlog` keeps these, in each job's way. `allowance`: how
    many jobs may come at once by its rate, as of the last `refusal`.
    """

    name: str = ""
    policy: AccountPolicy | None = None
    weight: float = 1.0
    held: int = 0
    size_bytes: int = 0
    taken: int = 0
    device_s: float = 0.0
    allowance: float = 0.0
    _filled_at: float | None = None

    def adopt(self, policy: AccountPolicy | None) -> None:
        self.policy = policy
        self.weight = 1.0 if policy is None else policy.weight
        if policy is None or policy.rate is None:
            self._filled_at = None  # a rate that comes later begins anew

    def never_fits(self, size_bytes: int, weight: int) -> str:
        """The bound that keeps such a job out even where nothing else of its account is in the pool, or ""."""
        policy = self.policy
        if policy is None:
            return ""
        if policy.max_bytes is not None and size_bytes > policy.max_bytes:
            return exceeds(size_bytes, f"max_bytes of client {self.name}", policy.max_bytes)
        if policy.max_jobs is not None and weight > policy.max_jobs:
            return f"{weight} jobs exceed max_jobs of client {self.name} ({policy.max_jobs})"
        if weight > 1 and policy.rate is not None and weight > policy.burst:
            return f"{weight} jobs exceed rate of client {self.name} ({policy.rate:g} a second)"
        return ""

    def refusal(self, size_bytes: int, weight: int, retry_after_s: float, now: float) -> JobFailed | None:
        """Why so many jobs more are too many for it, if they are. `retry_after_s`: until some of its own are done."""
        policy = self.policy
        assert policy is not None, "who has no bounds is not asked"
        if policy.max_jobs is not None and self.held and self.held + weight > policy.max_jobs:
            text = f"client {self.name} has {self.held} jobs in the queue or running; {weight} more would exceed its"
            return JobFailed(Fault.QUOTA_EXCEEDED, f"{text} max_jobs ({policy.max_jobs})", retry_after_s)
        if policy.max_bytes is not None and self.held and self.size_bytes + size_bytes > policy.max_bytes:
            text = f"client {self.name} has {readable(self.size_bytes)} in the queue or running;"
            text += f" {readable(size_bytes)} more would exceed its max_bytes ({rounded(policy.max_bytes)})"
            return JobFailed(Fault.QUOTA_EXCEEDED, text, retry_after_s)
        if policy.rate is None:
            return None
        if self._filled_at is None:
            self.allowance = policy.burst
        else:
            self.allowance = min(policy.burst, self.allowance + (now - self._filled_at) * policy.rate)
        self._filled_at = now
        if self.allowance < weight:
            wait_s = (weight - self.allowance) / policy.rate
            return JobFailed(Fault.QUOTA_EXCEEDED, f"client {self.name} may send {policy.rate:g} jobs a second", wait_s)
        return None


@dataclass(slots=True)
class Accounts:
    """All of the pool's, by the names that routes end with."""

    policy: Policy
    named: dict[bytes, Account] = field(default_factory=dict)

    def of(self, route: bytes) -> Account:
        """A new one where there is none."""
        name = route[NUMBER_BYTES:]
        account = self.named.get(name)
        if account is None:
            self._forget()
            text = name.decode()
            account = self.named[name] = Account(text)
            account.adopt(self.policy.account(text))
        return account

    def adopt(self, policy: Policy) -> None:
        self.policy = policy
        for account in self.named.values():
            account.adopt(policy.account(account.name))

    def _forget(self) -> None:
        """The oldest ones, with what they have used. Two go for one that comes, where they can."""
        for _ in range(2 if len(self.named) > MOST_IDLE else 0):
            name, account = next(iter(self.named.items()))
            del self.named[name]
            if account.held:
                self.named[name] = account  # it is not the oldest any more
