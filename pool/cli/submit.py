"""`pool submit`: one job from a shell."""

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from pool import Client
from pool.cli.names import ModelName
from pool.cli.options import as_json, endpoints_option, input_option, signature_option
from pool.cli.timeline_bar import timeline_bar, where_it_ran
from pool.terminal import count_of, show, size
from pool.wire.texts import printable

if TYPE_CHECKING:
    from pool.client.futures import JobFuture
    from pool.kept import KeptJob

__all__ = ["submit"]

LOADING_S = 120.0


@click.command(context_settings={"max_content_width": 100})
@click.argument("model", type=ModelName(), required=False)
@signature_option
@input_option
@click.option("--output", "outputs", multiple=True, metavar="NAME", help="Return only this output; may be repeated.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Seconds until the job fails. Default: the pool's default_timeout.",
)
@click.option(
    "--priority",
    type=click.IntRange(-100, 100),
    default=0,
    metavar="N",
    help="-100 to 100; higher runs first. Default: 0.",
)
@click.option("--device", metavar="NAME", help="Run only here: a device, uuid or slot:N from `pool status`.")
@click.option("--version", metavar="VERSION", help="Run this version of the model: a number or a label.")
@click.option("--timeline", is_flag=True, help="Also print where the time went.")
@click.option(
    "--replay",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Send this quarantined job again, instead of MODEL with inputs.",
)
@as_json
@endpoints_option
def submit(
    model: str | None,
    signature: str | None,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    version: str | None,
    timeline: bool,
    replay: Path | None,
    as_json: bool,
    endpoints: tuple[str, ...],
    **run: Any,
) -> None:
    """Run MODEL once and print its outputs.

    \b
    VALUE is one of
      [1, 2, 3]  3.5  "text"   JSON
      any text                 itself, for a string input
      @FILE                    .json is parsed, .npy loaded; any other file
                               is its bytes, for a string input
      @-                       standard input

    A value of one rank less than its input is a batch of one.

    \b
    pool submit digits --input pixels=@seven.json
    pool submit guesslang --input content='import os' --json
    """
    given = _given(model, signature, inputs, outputs, version)
    if replay is None and model is None:
        raise click.UsageError("Missing argument 'MODEL'.")
    if replay is not None and given:
        raise click.UsageError(f"--replay sends a stored job unchanged: leave out {', '.join(given)}.")
    wanted = int(version) if version is not None and version.isdecimal() else version
    with Client(endpoints or None) as client:
        if replay is not None:
            future = _replayed(client, replay, run)
        else:
            assert model is not None
            values = _values(client, model, signature, inputs, run["timeout"], wanted)
            future = client.submit(model, values, signature=signature, outputs=outputs or None, version=wanted, **run)
        answer = future.result()
    # numpy comes with the first job; a mistake in the options does not wait for it.
    from pool.cli.outputs import as_text, as_values

    where = future.timeline if timeline else None
    if as_json:
        about = {} if where is None else {"timeline": asdict(where)}
        click.echo(json.dumps({"outputs": as_values(answer), **about}, ensure_ascii=False, allow_nan=False))
        return
    click.echo(as_text(answer, shutil.get_terminal_size().columns))
    if where is not None:
        show(Text(f"\njob {where.job}: {where.wall_s * 1000:,.2f} ms, {where_it_ran(where)}"))
        show(timeline_bar(where.segments()))


def _given(
    model: str | None, signature: str | None, inputs: Sequence[str], outputs: Sequence[str], version: str | None
) -> list[str]:
    """What was said of the job itself."""
    said = {"MODEL": model, "--signature": signature, "--input": inputs, "--output": outputs, "--version": version}
    return [name for name, value in said.items() if value]


def _values(
    client: Client,
    model: str,
    signature: str | None,
    inputs: Sequence[str],
    timeout: float | None,
    version: int | str | None,
) -> dict[str, object]:
    from pool.cli.signature import inputs_of
    from pool.cli.values import read_inputs

    found = inputs_of(client, model, signature, LOADING_S if timeout is None else timeout, version)
    return read_inputs(inputs, None if found is None else found[1], sys.stdin.buffer)


def _replayed(client: Client, path: Path, run: Mapping[str, Any]) -> "JobFuture":
    from pool.kept import load

    kept = load(path)
    click.echo(_about(kept), err=True)  # on stderr, so that a pipe gets the answer alone
    return client.submit_payload(
        kept.model, signature=kept.signature, outputs=kept.outputs, rows=kept.rows, payload=kept.payload, **run
    )


def _about(kept: "KeptJob") -> str:
    """Which job it was, and what became of it."""
    rows = f", {count_of(kept.rows, 'row')}" if kept.rows else ""
    of = f"{kept.model} {kept.signature or ''}".rstrip()
    line = f"replaying job {kept.number} of {of}{rows}, {size(sum(map(len, kept.payload)))}"
    if kept.kept_at:
        line += f", kept at {kept.kept_at}"
    history = kept.history.splitlines()
    return "\n".join(map(printable, (line, f"its end: {history[-1]}") if history else (line,)))
