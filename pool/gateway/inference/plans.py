"""The plans of late, by path and header: clients send the same header again and again, but for an `id`.

An `id` that is the header's first member, where `tritonclient` writes it, is taken off before: it neither hides the
plan from the next request nor leaves one behind for each.
"""

import re

from pool.gateway import json_text
from pool.gateway.inference.paths import Place
from pool.gateway.inference.plan import Plan, prepared

__all__ = ["Plans"]

MOST = 256
MOST_HEADER_BYTES = 4096
"""A longer header is read each time: it has data in it, or is rare. So all keys together are 2 MiB at most."""

_ID = re.compile(rb'\{\s*"id"\s*:\s*("[^"\\]*(?:\\.[^"\\]*)*")\s*,\s*(?=")', re.DOTALL)


class Plans:
    """Two generations: what is used moves into the young one, and when that is full, the old one is dropped."""

    def __init__(self) -> None:
        self._young: dict[tuple[str, bytes], Plan] = {}
        self._old: dict[tuple[str, bytes], Plan] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def find(self, path: str, header: bytes) -> tuple[Plan | None, bytes, bytes]:
        """The plan, if it is known; the header to prepare it from, without its id; the id, as JSON, b"" for none.

        Raises `Refused` for an id that is no text.
        """
        found = _ID.match(header)
        own_id = b""
        if found is not None:
            own_id = found[1]
            json_text.read(own_id)
            header = b"{" + header[found.end() :]
        return self._young.get((path, header)) or self._aged(path, header), header, own_id

    def _aged(self, path: str, header: bytes) -> Plan | None:
        plan = self._old.pop((path, header), None)
        if plan is not None:
            self._keep((path, header), plan)
        return plan

    def prepare(self, path: str, place: Place, header: bytes) -> Plan:
        """One that is not known, of a request that says where its header ends. `place`: what the path names."""
        plan = prepared(place.name, place.version, header, has_binary=True)
        is_alone = plan.id is None and not any(array.size for array in plan.given.values())
        if is_alone and len(header) <= MOST_HEADER_BYTES:
            self._keep((path, header), plan)
        return plan

    def _keep(self, key: tuple[str, bytes], plan: Plan) -> None:
        if len(self._young) >= MOST:
            self._old, self._young = self._young, {}
        self._young[key] = plan
