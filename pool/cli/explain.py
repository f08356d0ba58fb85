"""`pool explain`: what became of a job or of a worker, and when."""

import re
from collections.abc import Sequence
from typing import TypeAlias

import click
from rich.table import Table
from rich.text import Text

from pool import Client
from pool.cli.cluster import ClusterCommand
from pool.cli.explain_slot import deaths_table, show_slot
from pool.cli.options import IMPATIENT, as_json, endpoints_option
from pool.cli.pools import show_each
from pool.cli.timeline_bar import segments_of, timeline_bar, where_it_ran
from pool.terminal import Column, count_of, show, size, styled_state, table
from pool.wire.records import JobHistory, JobSummary, Recent, SlotHistory
from pool.wire.texts import printable

__all__ = ["explain"]

Told: TypeAlias = JobHistory | SlotHistory | Recent


@click.command(cls=ClusterCommand, context_settings={"max_content_width": 100})
@click.argument("what", metavar="[JOB | worker N | slot:N]", nargs=-1)
@as_json
@endpoints_option
def explain(what: tuple[str, ...], as_json: bool, endpoints: tuple[str, ...]) -> None:
    """Show what happened to JOB, or why the last worker of a slot died.

    For a job: where it waited, ran and failed, and where its time went. For a slot: what its worker ran, where it hung
    or crashed, and its last output. Without an argument: the recent jobs and deaths.

    The pool numbers jobs itself: `pool submit --timeline` prints the number, and `future.timeline.job` has it. It
    remembers about the last thousand jobs. Crash reports of workers are kept in the state folder, too. Of several
    pools, each is asked.
    """
    job, slot = _asked(" ".join(what))

    def ask(client: Client) -> Told:
        if slot is not None:
            return client.explain(slot=slot)
        return client.explain() if job is None else client.explain(job)

    with Client(endpoints or None, **IMPATIENT) as client:
        show_each(client, ask, _show, (lambda found: found.to_dict()) if as_json else None)


def _show(found: Told) -> None:
    if isinstance(found, SlotHistory):
        show_slot(found)
    elif isinstance(found, Recent):
        show(_list(found.jobs) if found.jobs else "no job yet")
        if found.deaths:
            click.echo()
            show(deaths_table(found.deaths))
    else:
        _show_history(found)


def _asked(what: str) -> tuple[int | None, int | None]:
    """Job and slot, one of them at most."""
    if not what:
        return None, None
    match = re.fullmatch(r"(slot:|(?:slot|worker) )?(\d{1,18})", what, re.ASCII)
    if match is None:
        raise click.BadParameter(
            f"{what!r:.80} is neither a job number nor a slot; write a number such as 7, or worker 0"
        )
    number = int(match[2])
    return (None, number) if match[1] else (number, None)


def _show_history(found: JobHistory) -> None:
    show(_headline(found))
    if found.timeline is not None:
        segments = segments_of(found.timeline.to_dict())
        spent_ms = sum(seconds for _, seconds in segments) * 1000
        show(Text(f"\n{spent_ms:,.2f} ms in the pool, {where_it_ran(found.timeline)}"))
        show(timeline_bar(segments))
    if found.history:
        click.echo()
    for line in found.history:
        show(Text(f"  {printable(line)}"))


def _headline(found: JobSummary) -> Text:
    text = Text.assemble((f"job {found.job}", "bold"), f": {_model(found)}")
    if found.rows:
        text.append(f", {count_of(found.rows, 'row')}")
    if found.bytes:
        text.append(f", {size(found.bytes)}")
    if found.priority:
        text.append(f", priority {found.priority}")
    if found.device is not None:
        text.append(f", on {printable(found.device)} only")
    if found.timeout_s is not None:
        text.append(f", timeout {found.timeout_s:.3g} s")
    text.append(f", of client {found.client}: ")
    return text.append_text(styled_state(found.state))


def _list(jobs: Sequence[JobSummary]) -> Table:
    return table(
        jobs,
        Column(">JOB", lambda job: str(job.job)),
        Column("STATE", lambda job: styled_state(job.state)),
        Column("MODEL", _model),
        Column(">ROWS", lambda job: str(job.rows or "")),
        Column(">SIZE", lambda job: size(job.bytes)),
        Column(">PRIORITY", lambda job: str(job.priority), below=""),
        Column(">RUNS", lambda job: str(job.runs)),
        Column("DEVICE", lambda job: printable(job.device or ""), below=""),
        Column("CLIENT", lambda job: str(job.client), below=""),
    )


def _model(job: JobSummary) -> str:
    return printable(f"{job.model} {job.signature or ''}".rstrip())  # a client named it
