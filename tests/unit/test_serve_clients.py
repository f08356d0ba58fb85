"""The clients: whose a number is and for how long, what is owed to each, and who is silent."""

import pytest

from pool.serve.clients import LOOK_S, MOST_RESTING, Client, Clients
from pool.serve.shared_memory import JobRegions
from pool.serve.standing import ANYBODY, Standing
from pool.wire.client_messages import Opened

HERE, THERE, ELSEWHERE = (0, b"\0aaaa"), (1, b"\0aaaa"), (0, b"\0bbbb")
SILENCE_S = 2 * LOOK_S
TERMS, OTHER = Opened("test", 1, 1.0), Opened("test", 2, 1.0)


class Ended:
    """A regions, and whether it is over."""

    def __init__(self) -> None:
        self.over = False
        self.regions = JobRegions([], None, self._end)

    def _end(self, _: JobRegions) -> None:
        self.over = True


# --- their numbers --------------------------------------------------------------------------------------------------


def test_a_number_is_one_connections_and_never_anothers() -> None:
    clients = Clients(SILENCE_S, TERMS)
    first, second = clients.find(HERE, ANYBODY), clients.find(THERE, ANYBODY)
    assert [int.from_bytes(client.name[:8], "big") for client in (first, second)] == [1, 2]
    assert clients.find(HERE, ANYBODY) is clients.at[HERE] is clients.named[first.name] is first
    assert (first.address, second.address) == (HERE, THERE)
    clients.forget(first)
    assert HERE not in clients.at
    assert first.name not in clients.named
    assert int.from_bytes(clients.find(HERE, ANYBODY).name[:8], "big") == 3
    clients.forget(first)
    assert HERE in clients.at, "the number was no one's any more"


def test_a_name_tells_nothing_of_the_route() -> None:
    assert b"aaaa" not in Clients(SILENCE_S, TERMS).find(HERE).name


def test_one_that_rests_is_the_same_when_it_speaks_again() -> None:
    clients = Clients(SILENCE_S, TERMS)
    first = clients.find(HERE, ANYBODY)
    first.terms = OTHER
    clients.rest(first)
    assert clients.find(HERE, ANYBODY) is first
    assert first.terms is TERMS, "it is told of others once more"


def test_a_name_says_whose_account_it_is() -> None:
    clients = Clients(SILENCE_S, TERMS)
    assert clients.find(HERE, Standing("alice")).name == (1).to_bytes(8, "big") + b"alice"


def test_one_of_whom_nothing_could_be_read_is_told_apart_from_who_comes_from_there_next() -> None:
    clients = Clients(SILENCE_S, TERMS)
    unknown = clients.find(HERE)
    assert unknown.standing.models == frozenset(), "it may use nothing"
    clients.rest(unknown)
    known = clients.find(HERE, ANYBODY)
    assert known is not unknown
    assert known.standing is ANYBODY


def test_those_that_rest_are_bounded_and_the_others_are_kept() -> None:
    clients = Clients(SILENCE_S, TERMS)
    active, woken = clients.find(HERE, ANYBODY), clients.find(THERE, ANYBODY)
    clients.rest(woken)
    clients.heard(woken, 1.0)
    resting = [clients.find((0, number.to_bytes(5, "big")), ANYBODY) for number in range(2 * MOST_RESTING)]
    for client in resting:
        clients.rest(client)
    assert [client for client in resting if client.name in clients.named] == resting[-MOST_RESTING:], "the last"
    assert (clients.find(HERE, ANYBODY), clients.find(THERE, ANYBODY)) == (active, woken)


# --- what is owed to them -------------------------------------------------------------------------------------------


def test_a_job_is_owed_until_it_is_settled() -> None:
    client = Client(b"1", HERE, TERMS)
    client.owed[1] = None
    assert client.settle(1)
    assert not client.owed
    assert client.settle(1)  # cancelled, and answered all the same


def test_what_is_answered_last_is_released_with_the_answer() -> None:
    client, ended = Client(b"1", HERE, TERMS), Ended()
    client.owed[1] = ended.regions
    assert client.settle(1, quietly=True)
    assert ended.over
    assert ended.regions.quiet


def test_what_a_batch_still_reads_is_released_by_itself() -> None:
    client, ended = Client(b"1", HERE, TERMS), Ended()
    client.owed[1] = ended.regions
    ended.regions.hold()
    assert not client.settle(1, quietly=True)
    assert not ended.over
    assert not ended.regions.quiet
    ended.regions.let_go()
    assert ended.over


def test_a_client_that_is_gone_is_told_nothing() -> None:
    client, ended = Client(b"1", HERE, TERMS), Ended()
    client.owed[1] = ended.regions
    ended.regions.hold()
    client.forget()
    assert ended.regions.quiet
    assert not client.owed
    ended.regions.let_go()
    assert ended.over


# --- who is there ---------------------------------------------------------------------------------------------------


@pytest.fixture
def clients() -> Clients:
    clients = Clients(SILENCE_S, TERMS)
    for address in (HERE, THERE, ELSEWHERE):
        clients.heard(clients.find(address), 100.0)
    assert clients.silent(100.0) == []
    return clients


def looked(clients: Clients, since: float, until: float) -> list[Client]:
    """Who is silent then, where somebody has looked all the time."""
    silent: list[Client] = []
    for instant in range(int(since), int(until) + 1):
        silent = clients.silent(float(instant))
    return silent


def test_who_was_heard_of_again_is_not_silent_and_hides_nobody(clients: Clients) -> None:
    one, other, third = clients.present()
    clients.heard(one, 101.0)
    clients.heard(one, 102.0)
    clients.heard(other, 103.0)
    assert looked(clients, 103.0, 100.0 + SILENCE_S) == []
    assert looked(clients, 100.0 + SILENCE_S, 101.0 + SILENCE_S) == [third]
    assert looked(clients, 102.0 + SILENCE_S, 103.0 + SILENCE_S) == [third, one]
    assert looked(clients, 104.0 + SILENCE_S, 104.0 + SILENCE_S) == [third, one, other]


@pytest.mark.parametrize("which", [0, 2])
@pytest.mark.parametrize("rests", [False, True])
def test_one_that_was_forgotten_comes_again_as_the_last(clients: Clients, which: int, rests: bool) -> None:
    gone, other = clients.present()[which], clients.present()[1]
    if rests:
        clients.rest(gone)
    else:
        clients.forget(gone)
    assert gone not in clients.present()
    clients.heard(gone, 101.0)
    clients.heard(other, 102.0)
    assert clients.present()[-2:] == [gone, other]
    clients.heard(gone, 103.0)
    assert clients.present()[-2:] == [other, gone]


def test_a_pause_of_the_pool_counts_as_one_between_two_looks(clients: Clients) -> None:
    one, other, third = clients.present()
    assert clients.silent(100.0 + 1000 * SILENCE_S) == []
    clients.heard(one, 100.0 + 2000 * SILENCE_S)
    assert clients.silent(100.0 + 2000 * SILENCE_S) == [], "two looks of silence at most"
    assert looked(clients, 100.0 + 2000 * SILENCE_S, 101.0 + 2000 * SILENCE_S) == [other, third]


def test_somebody_looks_while_there_are_clients(clients: Clients) -> None:
    assert clients.next_look(100.0) == 100.0 + LOOK_S
    for client in clients.present():
        clients.forget(client)
    assert clients.next_look(100.0) is None
