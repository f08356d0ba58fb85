"""What clients do to the core."""

from __future__ import annotations

import json

from simulation.records import Payload
from walks.outside import Outside

__all__ = ["ClientMoves"]


class ClientMoves(Outside):
    def submit(
        self,
        client: bytes,
        model: str,
        timeout_s: float | None,
        rows: int | None,
        priority: int,
        device: int | str | None,
        size_bytes: int,
        version: int | str | None,
    ) -> None:
        self.numbers += 1
        self.body.submit(
            client,
            self.numbers,
            model,
            rows=rows,
            timeout_s=timeout_s,
            priority=priority,
            device=self._device(model, device),
            size_bytes=size_bytes,
            version=self._version(model, version),
        )

    def submit_many(
        self,
        client: bytes,
        model: str,
        count: int,
        rows: int | None,
        form: bytes,
        outputs: tuple[str, ...] | None,
        device: int | str | None,
    ) -> None:
        """Of one kind, which may run together, in one burst."""
        name = self._device(model, device)
        with self.core.burst():
            for _ in range(count):
                self.numbers += 1
                self.body.submit(
                    client, self.numbers, model, rows=rows, timeout_s=30.0, form=form, outputs=outputs, device=name
                )

    def submit_a_pack(
        self,
        client: bytes,
        model: str,
        members: tuple[int, ...],
        timeout_s: float | None,
        priority: int,
        device: int | str | None,
        form: bytes,
        outputs: tuple[str, ...] | None,
        attempts: int,
        kills: int | None,
        guilty: int | None,
        version: int | str | None,
    ) -> None:
        """A poisonous member kills its worker; with a guilty one the run fails, whenever that is its turn."""
        self.numbers += 1
        self.body.submit(
            client,
            self.numbers,
            model,
            timeout_s=timeout_s,
            priority=priority,
            device=self._device(model, device),
            size_bytes=7 * len(members),
            form=form,
            outputs=outputs,
            attempts=attempts,
            in_doubt=attempts > 0,
            kills=() if kills is None else (kills % len(members),),
            guilty=() if guilty is None else (guilty % len(members),),
            members=members,
            version=self._version(model, version),
        )

    def submit_what_a_former_pool_may_have_started(
        self, client: bytes, model: str, rows: int | None, attempts: int
    ) -> None:
        self.numbers += 1
        self.body.submit(client, self.numbers, model, rows=rows, timeout_s=60.0, attempts=attempts, in_doubt=True)

    def submit_poison(self, client: bytes, model: str, count: int, device: int | str | None, guilty: bool) -> None:
        """One of several kills its worker, or makes its run fail."""
        name = self._device(model, device)
        with self.core.burst():
            for number in range(count):
                self.numbers += 1
                bad = number == 1
                self.body.submit(
                    client,
                    self.numbers,
                    model,
                    rows=2,
                    timeout_s=300.0,
                    kills=bad and not guilty,
                    guilty=bad and guilty,
                    device=name,
                )

    def use_a_number_again(self, pick: int, model: str, timeout_s: float | None) -> None:
        if recent := list(self.body.ledger.recent)[-5:]:
            record = recent[pick % len(recent)]
            self.core.submit(
                record.client,
                record.number,
                model,
                3,
                Payload(self.body.ledger.arrived),
                timeout_s=timeout_s,
                weight=1 + pick % 3,
                origin=record.number - pick % 5,
            )

    def cancel(self, pick: int) -> None:
        if recent := self.body.ledger.recent:
            record = recent[pick % len(recent)]
            self.core.cancel(record.client, record.number)

    def cancel_what_waits(self, pick: int) -> None:
        """A job that has not started."""
        if waiting := [record for record in self.body.ledger.open.values() if not record.started]:
            record = waiting[pick % len(waiting)]
            self.core.cancel(record.client, record.number)

    def cancel_a_whole_pack(self, pick: int) -> None:
        """Or what has become of one."""
        if held := list(self.body.carried):
            self.core.cancel(*held[pick % len(held)])

    def cancel_a_member(self, pick: int, member: int) -> None:
        if held := list(self.body.carried):
            client, number = held[pick % len(held)]
            members = list(self.body.carried[client, number].members)
            self.body.cancel_member(client, number, members[member % len(members)])

    def client_goes(self, client: bytes) -> None:
        self.core.client_gone(client)

    def somebody_asks(self, about: str) -> None:
        history = self.core.explain(about)
        json.dumps([history, self.core.models_snapshot()])
        assert about != "" or history is not None

    def _device(self, model: str, device: int | str | None) -> str | None:
        """A number is one of the names of the slots that have the model."""
        if not isinstance(device, int):
            return device
        slots = [slot for slot, models in enumerate(self.body.planned) if model in models]
        names = [name for slot in slots for name in (f"slot:{slot}", f"gpu:{slot // 2}")]
        return names[device % len(names)] if names else None

    def _version(self, model: str, version: int | str | None) -> int | str | None:
        if version != "served":
            return version
        served = {
            worker.versions[model] for worker in self.body.workers.values() if worker.ready and model in worker.versions
        }
        return sorted(served)[self.numbers % len(served)] if served else None
