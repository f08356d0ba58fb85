"""The clients' numbers: whose they are, and for how long."""

from pool.serve.clients import MOST_RESTING, Clients

HERE, THERE = (0, b"\0aaaa"), (1, b"\0aaaa")


def test_a_number_is_one_connections_and_never_anothers() -> None:
    clients = Clients()
    first, second = clients.name(HERE), clients.name(THERE)
    assert [int.from_bytes(name, "big") for name in (first, second)] == [1, 2]
    assert clients.name(HERE) == clients.names.get(HERE) == first
    assert (clients.addresses.get(first), clients.addresses.get(second)) == (HERE, THERE)
    clients.forget(first)
    assert clients.names.get(HERE) is clients.addresses.get(first) is None
    assert int.from_bytes(clients.name(HERE), "big") == 3
    clients.forget(first)
    assert clients.names.get(HERE) is not None, "the number was no one's any more"


def test_a_name_tells_nothing_of_the_route() -> None:
    assert b"aaaa" not in Clients().name(HERE)


def test_one_that_rests_is_the_same_when_it_speaks_again() -> None:
    clients = Clients()
    first = clients.name(HERE)
    clients.rest(first)
    assert clients.name(HERE) == first


def test_those_that_rest_are_bounded_and_the_others_are_kept() -> None:
    clients = Clients()
    active, woken = clients.name(HERE), clients.name(THERE)
    clients.rest(woken)
    assert clients.name(THERE) == woken
    names = [clients.name((0, number.to_bytes(5, "big"))) for number in range(2 * MOST_RESTING)]
    for name in names:
        clients.rest(name)
    assert sum(clients.addresses.get(name) is not None for name in names) == MOST_RESTING
    assert clients.addresses.get(names[-1]) is not None, "the last to rest are kept"
    assert (clients.name(HERE), clients.name(THERE)) == (active, woken)
