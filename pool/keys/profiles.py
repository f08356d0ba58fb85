"""Which keys a client uses for an endpoint: the given ones, else those of its profiles, else of its environment.

`$XDG_CONFIG_HOME/pool/pools.toml` has a table for each pool that is far away; its name stands for the endpoint:

    [lab]
    endpoint = "tcp://gpu1.example:5555"
    key = "alice.key_secret"                # paths are relative to this file
    server_key = "lab.key"                  # or its 40 characters
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pool.errors import InvalidConfig
from pool.keys.files import KEY_TEXT, Pair, check_own, read_pair, read_public

__all__ = ["KEY_VARIABLE", "SERVER_KEY_VARIABLE", "Keys", "Profile", "keys_for", "named", "profiles_path"]

KEY_VARIABLE = "POOL_KEY"
SERVER_KEY_VARIABLE = "POOL_SERVER_KEY"
_KEYS = ("endpoint", "key", "server_key")

KeyFile: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Keys:
    """A client's own pair, and the public key of the pool that it wants to reach."""

    own: Pair
    server: str


@dataclass(frozen=True, slots=True)
class Profile:
    """`key`, `server_key`: as they are written; paths among them are absolute."""

    endpoint: str
    key: str | None = None
    server_key: str | None = None


def profiles_path(environ: Mapping[str, str]) -> Path:
    """Where the profiles of a user are, if he has any."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(home, "pool", "pools.toml")


def named(name: str, environ: Mapping[str, str], user: int) -> Profile | None:
    """The profile of this name. Raises `InvalidConfig` for a file that is not to be trusted, or says something else."""
    if name.startswith("ipc://"):  # which needs no descriptor for this, where there may be none left
        return None
    return _profiles(environ, user).get(name)


def keys_for(
    endpoint: str,
    profile: Profile | None,
    key: KeyFile | None,
    server_key: KeyFile | None,
    environ: Mapping[str, str],
    user: int,
) -> Keys | None:
    """Of a connection to the endpoint; None: it is made without. `profile`: by which the endpoint was named.

    Raises `InvalidConfig` for keys that are wrong, or missing where the endpoint is not this machine's.
    """
    if not endpoint.startswith("tcp://"):
        if key is not None or server_key is not None:
            raise InvalidConfig(f"keys are for tcp:// endpoints, and {endpoint} is none; leave key and server_key out")
        return None
    if profile is None and None in (key, server_key):
        profile = next((each for each in _profiles(environ, user).values() if each.endpoint == endpoint), None)
    found = [
        given or kept or environ.get(variable)
        for given, kept, variable in (
            (key, profile and profile.key, KEY_VARIABLE),
            (server_key, profile and profile.server_key, SERVER_KEY_VARIABLE),
        )
    ]
    own, server = found
    if own is None and server is None and _is_loopback(endpoint):
        return None
    if own is None or server is None:
        missing = " and ".join(
            f"{argument} (or ${variable})"
            for argument, variable, value in (("key", KEY_VARIABLE, own), ("server_key", SERVER_KEY_VARIABLE, server))
            if value is None
        )
        raise InvalidConfig(
            f"{endpoint} needs keys: give {missing}, or write them into {profiles_path(environ)};"
            " `pool help remote` says how"
        )
    return Keys(read_pair(Path(own), user), _server(server, user))


def _server(given: KeyFile, user: int) -> str:
    text = os.fspath(given)
    return text if KEY_TEXT.fullmatch(text) else read_public(Path(text), user)


def _is_loopback(endpoint: str) -> bool:
    """`localhost` is meant for a port that `ssh -L` opens; any other name may be any machine's."""
    host = endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        from ipaddress import ip_address  # most clients need none of it

        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _profiles(environ: Mapping[str, str], user: int) -> dict[str, Profile]:
    path = profiles_path(environ)
    try:
        with open(path, "rb", opener=_at_once) as file:
            check_own(path, os.fstat(file.fileno()), user, 0o022)
            import tomllib  # most users have no such file

            tables = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # of TOML, and of a text that is no UTF-8
        if isinstance(error, InvalidConfig):
            raise
        raise InvalidConfig(f"{path} is not TOML: {error}") from None
    return {name: _profile(path, name, table) for name, table in tables.items()}


def _at_once(path: str, flags: int) -> int:
    """A pipe of this name must not hold up who opens it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _profile(path: Path, name: str, table: object) -> Profile:
    if not isinstance(table, dict) or not isinstance(table.get("endpoint"), str):
        raise InvalidConfig(f'{path}: [{name!r:.80}] has no endpoint; write one such as endpoint = "tcp://gpu1:5555"')
    for key, value in table.items():
        if key not in _KEYS:
            raise InvalidConfig(f"{path}: [{name}] {key!r:.80}: unknown key; write one of {', '.join(_KEYS)}")
        if not isinstance(value, str) or not value:
            raise InvalidConfig(f"{path}: [{name}] {key}: {value!r:.80} is not a text; write a text in quotes")
    key, server = table.get("key"), table.get("server_key")
    if server is not None and KEY_TEXT.fullmatch(server) is None:
        server = _absolute(path, server)
    return Profile(table["endpoint"], None if key is None else _absolute(path, key), server)


def _absolute(path: Path, written: str) -> str:
    return os.path.join(path.parent, os.path.expanduser(written))
