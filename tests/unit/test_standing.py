"""Who a client is to the pool: one rule for keys, users and who shows nothing."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from pool.config import ClientSection, parse_settings
from pool.errors import InvalidConfig
from pool.serve.standing import ANYBODY, Standing, Standings
from pool.wire.rights import RIGHTS

OTHER = os.getuid() + 1
CLIENTS: list[Mapping[str, object]] = [
    {"name": "alice", "keys": ["laptop"], "users": [OTHER], "models": ["m"], "may": ["load", "load", "logs"]},
    {"name": "root-too", "users": [os.getuid()], "models": []},
]


def clients(*sections: Mapping[str, object]) -> tuple[ClientSection, ...]:
    return parse_settings({"client": list(sections)}, "config", Path("/")).client


def test_a_client_section_says_what_its_keys_and_users_may() -> None:
    standings = Standings(clients(*CLIENTS))
    alice = Standing("alice", frozenset({"m"}), frozenset({"load", "logs"}))
    assert standings.of_key("alice") == standings.of_key("laptop") == standings.of_user(OTHER) == alice


def test_who_has_none_submits_and_asks() -> None:
    standings = Standings(clients(*CLIENTS))
    assert standings.of_key("bob") == Standing("key:bob", None, frozenset())
    assert standings.of_user(OTHER + 1) == Standing(f"uid:{OTHER + 1}", None, frozenset())
    assert standings.of_user(None) is ANYBODY


def test_the_pools_own_user_may_everything_whatever_is_written() -> None:
    standings = Standings(clients(*CLIENTS))
    assert standings.of_user(os.getuid()) == Standing("root-too", None, RIGHTS)
    assert standings.of_user(0).may == RIGHTS
    assert Standings().of_user(0) == Standing("uid:0", None, RIGHTS)


def test_nobody_is_two_clients() -> None:
    for twice in ({"keys": ["laptop"]}, {"keys": ["alice"]}, {"users": [OTHER]}):
        with pytest.raises(InvalidConfig, match=r"client: (key|user) .* is of alice and of other"):
            clients(CLIENTS[0], {"name": "other", **twice})
    assert clients({"name": "a", "keys": ["a", "a"], "users": ["root", 0]})[0].users == (0, 0)


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        ({"keys": ["a/b"]}, "is not a name"),
        ({"keys": ["a\x1b[2J"]}, "is not a name"),
        ({"keys": "laptop"}, "is not a list"),
        ({"users": ["no such user"]}, "is no user of this machine"),
        ({"users": [-1]}, "is no user of this machine"),
        ({"users": [True]}, "is no user of this machine"),
        ({"users": "root"}, "is not a list of users"),
        ({"may": ["everything"]}, "is not a choice"),
        ({"may": "load"}, "is not a list"),
        ({"weight": 0.0}, "write 0.001 or more"),
    ],
)
def test_a_wrong_client_is_told(keys: Mapping[str, object], what: str) -> None:
    with pytest.raises(InvalidConfig, match=what) as caught:
        clients({"name": "alice", **keys})
    assert str(caught.value).isprintable()
