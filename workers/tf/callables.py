"""Prepared calls into a Session.

`Session.run` spends 230 µs on a tiny graph before and after TensorFlow's own work, a prepared callable 30,
and 6 to 9 if it runs in the thread that calls it.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from workers.tf.library import CallableOptions, tf
from workers.tf.subnormals import flushing

__all__ = ["Callables", "Prepared"]

Prepared: TypeAlias = Callable[..., list[Any]]
"""Takes an array a feed, gives an array a fetch, both in the order they were prepared with."""

_Key: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], bool, tuple[str, ...]]

# A caller chooses the outputs it wants; each choice costs tens of milliseconds once, and memory while kept.
_MAX_KEPT = 32


class Callables:
    """The callables of one Session. Safe from several threads.

    `prepare` makes one that stays until `forget`; `get` gives that, or one of the last 32 others that were asked
    for, or makes it. One that is dropped while it runs finishes first.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._prepared: dict[_Key, Prepared] = {}
        self._recent: OrderedDict[_Key, Prepared] = OrderedDict()
        self._lock = threading.Lock()
        self._making = threading.Lock()

    def prepare(self, feeds: Sequence[str], fetches: Sequence[str], own_threads: bool) -> None:
        """Makes a callable for good. Raises what TensorFlow raises.

        `own_threads`: run it in TensorFlow's threads, as ops that block need; else in the caller's thread.
        """
        key = (tuple(feeds), tuple(fetches), own_threads, ())
        self._prepared[key] = self._make(key)

    def forget(self, feeds: Sequence[str], fetches: Sequence[str], own_threads: bool) -> None:
        """Keeps a prepared callable no longer, if there is one."""
        self._prepared.pop((tuple(feeds), tuple(fetches), own_threads, ()), None)

    def prepared(self, feeds: Sequence[str], fetches: Sequence[str], own_threads: bool) -> Prepared | None:
        """The callable for these tensors, if it was prepared."""
        return self._prepared.get((tuple(feeds), tuple(fetches), own_threads, ()))

    def get(
        self, feeds: Sequence[str], fetches: Sequence[str], own_threads: bool, targets: Sequence[str] = ()
    ) -> Prepared:
        """The callable for these tensors. Blocks while it is made. Raises what TensorFlow raises.

        `targets`: operations that it runs for their effect.
        """
        key = (tuple(feeds), tuple(fetches), own_threads, tuple(targets))
        found = self._find(key)
        if found is not None:
            return found
        with self._making:  # not `_lock`: another lane need not wait for this to look its own up
            found = self._find(key)
            if found is not None:
                return found
            made = self._make(key)
            with self._lock:
                self._recent[key] = made
                dropped = self._recent.popitem(last=False) if len(self._recent) > _MAX_KEPT else None
        del dropped  # released outside the lock, and by the last thread that runs it
        return made

    def _find(self, key: _Key) -> Prepared | None:
        prepared = self._prepared.get(key)
        if prepared is not None:
            return prepared
        with self._lock:
            recent = self._recent.get(key)
            if recent is not None:
                self._recent.move_to_end(key)
            return recent

    def _make(self, key: _Key) -> Prepared:
        feeds, fetches, own_threads, targets = key
        run = tf.compat.v1.RunOptions(inter_op_thread_pool=0 if own_threads else -1)
        options = CallableOptions(feed=feeds, fetch=fetches, target=targets, run_options=run)
        made: Prepared = self._session._make_callable_from_options(options)
        return made if own_threads else flushing(made)
