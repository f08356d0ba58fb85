"""CURVE keys: who may reach a pool over TCP, and how a client knows that it is this pool.

Files of keys and of profiles come in; checked keys go out, and new files that nobody else can read. It never opens a
socket, and never trusts a file that others could have written.
"""

from pool.keys.files import NAME, PUBLIC, SECRET, Pair, make_pair, read_pair, read_public
from pool.keys.folder import Entrant, KeyFolder
from pool.keys.profiles import KEY_VARIABLE, SERVER_KEY_VARIABLE, KeyFile, Keys, keys_for, named, profiles_path

__all__ = [
    "KEY_VARIABLE",
    "NAME",
    "PUBLIC",
    "SECRET",
    "SERVER_KEY_VARIABLE",
    "Entrant",
    "KeyFile",
    "KeyFolder",
    "Keys",
    "Pair",
    "keys_for",
    "make_pair",
    "named",
    "profiles_path",
    "read_pair",
    "read_public",
]
