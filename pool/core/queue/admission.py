"""Which jobs are taken in."""

import difflib

from pool.core.actions import JobFailed
from pool.core.policy import Policy
from pool.core.queue.accounts import Account
from pool.core.queue.backlog import Backlog
from pool.core.queue.keys import Client
from pool.core.queue.models import Model
from pool.wire.entries import model_of
from pool.wire.faults import Fault
from pool.wire.sizes import exceeds, readable, rounded

__all__ = ["PRIORITIES", "gone", "never_fits", "refusal", "unknown"]

SEARCHED_CHARS = 40  # the search for a near name takes as long as the texts are, and as there are many
SEARCHED_NAMES = 50
PRIORITIES = range(-100, 101)
LONGEST_TIMEOUT_S = 1e8  # three years, as the client has it: what is reckoned from it stays a number
CLIENT_SHARE = 8  # a client may hold so many times what is free: alone 8/9 of all, two of them 8/17 each, and so on
DRAINED = 0.05  # who was refused may come again when this share of what is in the way is likely to be done


def refusal(
    model: Model,
    client: Client,
    number: int,
    timeout_s: float | None,
    priority: int,
    size_bytes: int,
    weight: int,
    policy: Policy,
    backlog: Backlog,
    stopping: bool,
    now: float,
) -> JobFailed | None:
    """Why a job is not taken in, in words for its caller; None if it is."""
    if model.leaving:
        return gone(model.name, policy)
    if number in client.jobs:
        return JobFailed(Fault.INVALID_INPUT, f"job {number} is already in the pool")
    if timeout_s is not None and not 0 <= timeout_s <= LONGEST_TIMEOUT_S:
        text = f"timeout is {timeout_s} s; give a positive number up to {LONGEST_TIMEOUT_S:g}"
        return JobFailed(Fault.INVALID_INPUT, text)
    if priority not in PRIORITIES:
        allowed = f"{PRIORITIES[0]} to {PRIORITIES[-1]}"
        return JobFailed(Fault.INVALID_INPUT, f"priority is {priority}; give one from {allowed}")
    if stopping:
        return JobFailed(Fault.POOL_STOPPING, "the pool is stopping and accepts no new jobs")
    if bound := never_fits(model, client, size_bytes, weight, policy):
        if weight > 1:
            return None  # it needs no room, since its jobs come singly
        return JobFailed(Fault.INVALID_INPUT, f"the job is too large: {bound}")
    jobs, held_bytes = backlog.held, backlog.size_bytes
    if jobs and jobs + weight > policy.max_jobs:
        text = f"the pool holds {_jobs(jobs, weight)} [queue] max_jobs ({policy.max_jobs})"
        return _overloaded(text, weight, jobs, backlog, now)
    if held_bytes + size_bytes > policy.max_bytes:
        text = f"the pool holds {_bytes(held_bytes, size_bytes)} [queue] max_bytes ({rounded(policy.max_bytes)})"
        return _overloaded(text, weight, jobs, backlog, now)
    of_model = model.jobs
    most = model.policy.max_jobs
    if most is not None and of_model and of_model + weight > most:
        text = f"model {model.name} has {_jobs(of_model, weight)} its max_jobs ({most})"
        return _overloaded(text, weight, of_model, backlog, now)
    allowed_bytes = model.policy.max_bytes
    if allowed_bytes is not None and of_model and model.size_bytes + size_bytes > allowed_bytes:
        text = f"model {model.name} has {_bytes(model.size_bytes, size_bytes)} its max_bytes ({rounded(allowed_bytes)})"
        return _overloaded(text, weight, of_model, backlog, now)
    account = client.account
    one: Client | Account = client  # as [queue] counts clients
    if account.policy is not None:
        one = account
        retry_after_s = backlog.seconds_for(max(weight, DRAINED * account.held), now)
        if (failed := account.refusal(size_bytes, weight, retry_after_s, now)) is not None:
            return failed
    mine = one.held
    if not mine:
        return None
    most = CLIENT_SHARE * (policy.max_jobs - jobs) if policy.client_max_jobs is None else policy.client_max_jobs
    if mine + weight > most:
        text = f"this client has {_jobs(mine, weight)} {_of_client('jobs', policy.client_max_jobs)} ({most:.0f})"
        return _overloaded(text, weight, mine, backlog, now)
    free = policy.max_bytes - held_bytes
    most = CLIENT_SHARE * free if policy.client_max_bytes is None else policy.client_max_bytes
    if one.size_bytes + size_bytes > most:
        limit = f"{_of_client('bytes', policy.client_max_bytes)} ({rounded(most)})"
        text = f"this client has {_bytes(one.size_bytes, size_bytes)} {limit}"
        return _overloaded(text, weight, mine, backlog, now)
    return None


def never_fits(model: Model, client: Client, size_bytes: int, weight: int, policy: Policy) -> str:
    """The bound that keeps such a job out even of an empty pool, or "". One job always has room beside no other."""
    of_model = model.policy
    if size_bytes > policy.max_bytes:
        return exceeds(size_bytes, "[queue] max_bytes", policy.max_bytes)
    if policy.client_max_bytes is not None and size_bytes > policy.client_max_bytes:
        return exceeds(size_bytes, "[queue] client_max_bytes", policy.client_max_bytes)
    if of_model.max_bytes is not None and size_bytes > of_model.max_bytes:
        return exceeds(size_bytes, f"max_bytes of model {model.name}", of_model.max_bytes)
    if client.account.policy is not None and (bound := client.account.never_fits(size_bytes, weight)):
        return bound
    if weight == 1:
        return ""
    if weight > policy.max_jobs:
        return f"{weight} jobs exceed [queue] max_jobs ({policy.max_jobs})"
    if policy.client_max_jobs is not None and weight > policy.client_max_jobs:
        return f"{weight} jobs exceed [queue] client_max_jobs ({policy.client_max_jobs})"
    if of_model.max_jobs is not None and weight > of_model.max_jobs:
        return f"{weight} jobs exceed max_jobs of model {model.name} ({of_model.max_jobs})"
    return ""


def _overloaded(text: str, more: int, in_the_way: int, backlog: Backlog, now: float) -> JobFailed:
    """There is no room for so many jobs more, as so many are in their way."""
    return JobFailed(Fault.OVERLOADED, text, backlog.seconds_for(max(more, DRAINED * in_the_way), now))


def gone(model: str, policy: Policy) -> JobFailed:
    """What a job is told of a model that no slot has any more, or none could load."""
    why = policy.unloadable.get(model)
    if why is None:
        return JobFailed(Fault.MODEL_NOT_FOUND, f"model {model!r} is no longer served")
    text = f"model {model!r} could not be loaded, so it is not served: {why}; mend it, then run `pool reload`"
    return JobFailed(Fault.MODEL_NOT_FOUND, text)


def unknown(model: str, backlog: Backlog) -> JobFailed:
    """What a job is told of a model that is not there."""
    names = list(dict.fromkeys(model_of(name) for name in backlog.models))
    near = difflib.get_close_matches(model[:SEARCHED_CHARS], names[:SEARCHED_NAMES], n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(names))}"
    return JobFailed(Fault.MODEL_NOT_FOUND, f"no model {model!r:.100}", others=f"; {hint}")


def _jobs(held: int, more: int) -> str:
    return f"{held} jobs in the queue or running; {more} more would exceed"


def _bytes(held: int, more: int) -> str:
    return f"{readable(held)} in the queue or running; {readable(more)} more would exceed"


def _of_client(what: str, configured: int | None) -> str:
    """A client without a limit of its own leaves a share to whoever comes."""
    return f"its share of [queue] max_{what}" if configured is None else f"[queue] client_max_{what}"
