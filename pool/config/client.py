"""`[[client]]`: who it is, by tokens, keys and Unix users, and what it may."""

import pwd
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PlainValidator, field_validator

from pool.config.quantities import BytesOrUnlimited, CountOrUnlimited, RateOrUnlimited, Weight
from pool.config.section import Section
from pool.keys import NAME
from pool.wire.rights import Right

__all__ = ["ClientSection"]


def _name(value: str) -> str:
    if NAME.fullmatch(value) is None:
        raise ValueError(f"{value!r} is not a name; write letters, digits, '_', '.' and '-', 1 to 64 of them")
    return value


def _models(value: Any) -> Any:
    if value == "all" or value is None:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise ValueError(f'{value!r} does not name models; write "all", or a list of names such as ["digits"]')
    return tuple(value)


def _users(value: Any) -> tuple[int, ...]:
    """Their ids. What a name stands for is asked once: an answer from the network could keep the pool waiting."""
    if not isinstance(value, list | tuple):
        raise ValueError(f'{value!r} is not a list of users; write their names, such as ["alice"]')
    return tuple(map(_user_id, value))


def _user_id(user: Any) -> int:
    if type(user) is int and 0 <= user < 2**32:
        return user
    try:
        return pwd.getpwnam(user).pw_uid
    except (KeyError, ValueError, TypeError):
        raise ValueError(f"{user!r} is no user of this machine; write a name that `id` knows, or a number") from None


class ClientSection(Section):
    """What a client may do: whoever shows a token or a key of this `name`, one of `keys`, or is one of `users`.

    `models` "all", None once loaded: each. `weight`: its share where others wait, too. `rate`: jobs a second;
    `max_jobs`, `max_bytes`: at once. "unlimited", None: within the pool's own bounds. `may`: its rights. `users` are
    ids once loaded.
    """

    name: Annotated[str, AfterValidator(_name)]
    keys: Annotated[tuple[Annotated[str, AfterValidator(_name)], ...], Field(strict=False)] = ()
    users: Annotated[tuple[int, ...], PlainValidator(_users)] = ()
    models: Annotated[tuple[str, ...] | None, PlainValidator(_models)] = None
    weight: Weight = 1.0
    rate: RateOrUnlimited = None
    max_jobs: CountOrUnlimited = None
    max_bytes: BytesOrUnlimited = None
    may: Annotated[tuple[Right, ...], Field(strict=False)] = ()

    @field_validator("may")
    @classmethod
    def _once_each(cls, value: tuple[Right, ...]) -> tuple[Right, ...]:
        return tuple(dict.fromkeys(value))
