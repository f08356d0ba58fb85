"""`pool submit`: one job from a shell."""

import json
import shutil
import sys

import click

from pool.cli.job_options import input_option, signature_option
from pool.cli.options import as_json, endpoint_option
from pool.client.client import Client

__all__ = ["submit"]

LOADING_S = 120.0


@click.command(context_settings={"max_content_width": 100})
@click.argument("model")
@signature_option
@input_option
@click.option("--output", "outputs", multiple=True, metavar="NAME", help="Return this output only; may be repeated.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="The job's; the pool's default_timeout otherwise.",
)
@as_json
@endpoint_option
def submit(
    model: str,
    signature: str | None,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    timeout: float | None,
    as_json: bool,
    endpoint: str | None,
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
    # numpy comes with the first job; a mistake in the options does not wait for it.
    from pool.cli.outputs import as_text, as_values
    from pool.cli.signature import inputs_of
    from pool.cli.values import read_inputs

    with Client(endpoint) as client:
        found = inputs_of(client, model, signature, LOADING_S if timeout is None else timeout)
        values = read_inputs(inputs, None if found is None else found[1], sys.stdin.buffer)
        answer = client.run(model, values, signature=signature, outputs=outputs or None, timeout=timeout)
    if as_json:
        click.echo(json.dumps({"outputs": as_values(answer)}, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(as_text(answer, shutil.get_terminal_size().columns))
