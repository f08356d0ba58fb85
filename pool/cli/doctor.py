"""`pool doctor`: whether what the pool promises holds on this machine."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

import click
from rich.text import Text

from pool.cli.failure import CommandFailed
from pool.cli.options import as_json, config_option, print_json
from pool.cli.progress import progress
from pool.cli.start import settings_of
from pool.doctor import Machine, Verdict, examine, report
from pool.terminal import Column, count_of, show, table
from pool.wire.texts import printable

__all__ = ["doctor"]

STYLES = {Verdict.OK: "green", Verdict.WARNING: "yellow", Verdict.FAILED: "bold red", Verdict.CANNOT: "dim"}


@click.command()
@config_option
@click.option(
    "--report",
    "file",
    type=click.File("w", encoding="utf-8", errors="backslashreplace", lazy=False),
    metavar="FILE",
    help="Also write a text to attach to a bug report.",
)
@as_json
def doctor(config: Path | None, file: TextIO | None, as_json: bool) -> None:
    """Check this machine, and say what is well and what to do.

    Needs no running pool, and takes about a minute. The endpoint, ports and sizes are those of the configuration.
    Processes like workers try TensorFlow on each GPU, or on the CPU. They take up to 3 GiB of a GPU's memory. Exit
    status 0: nothing is wrong, but there may be warnings. 1: something is.
    """
    machine = Machine(dict(os.environ), settings_of(config))
    with progress() as say:
        found = list(examine(machine, lambda name: say(f"checking {name} …")))
    if file is not None:
        file.write(report(found, machine.environ))
    if as_json:
        print_json({"findings": [{**asdict(each), "verdict": each.verdict.value} for each in found]})
    else:
        show(
            table(
                found,
                Column("CHECK", lambda finding: finding.name),
                Column("VERDICT", lambda finding: Text(finding.verdict.value, STYLES[finding.verdict])),
                Column("SEEN", lambda finding: printable(finding.seen)),
                Column("WHAT TO DO", lambda finding: finding.advice and f"→ {printable(finding.advice)}", below="SEEN"),
            )
        )
    named = {verdict: [finding.name for finding in found if finding.verdict is verdict] for verdict in Verdict}
    if wrong := named[Verdict.FAILED]:
        raise CommandFailed(f"{count_of(len(wrong), 'check')} failed: {', '.join(wrong)}")
    if not as_json:
        warned, unchecked = count_of(len(named[Verdict.WARNING]), "warning"), len(named[Verdict.CANNOT])
        click.echo(f"\nOK: nothing is wrong; {warned}, and {unchecked} could not be checked")
