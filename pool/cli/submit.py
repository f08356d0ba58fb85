"""`pool submit`: one job from a shell."""

import shutil
import sys

import click

from pool.cli.asking import as_json, connect, echo_json, endpoint_option

__all__ = ["submit"]


@click.command()
@click.argument("model")
@click.option("--input", "inputs", multiple=True, metavar="NAME=VALUE", help="For each input; see above.")
@click.option("--signature", metavar="NAME", help="Default: serving_default, or the only one.")
@click.option("--output", "outputs", multiple=True, metavar="NAME", help="Return only this output; may be repeated.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Default: the pool's.")
@as_json
@endpoint_option
def submit(
    model: str,
    inputs: tuple[str, ...],
    signature: str | None,
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
      -                        standard input

    A value of one rank less than its input is a batch of one. NAME= may be left out where there is one input.

    \b
    pool submit digits --input pixels=@seven.json
    """
    with connect(endpoint) as client:
        record = client.model(model)
        # numpy comes with the first job, so that a mistake in the options does not wait for it.
        from pool.cli.values import as_json_values, as_text, read_inputs
        from pool.wire.signatures import Signature, signature_name

        try:
            name = signature_name(signature or "", record["signatures"])
        except LookupError as error:
            raise click.UsageError(f"{model}: {error}") from None
        infos = Signature.from_record(record["signatures"][name]).inputs
        values = read_inputs(inputs, infos, sys.stdin.buffer)
        result = client.run(model, values, signature=name, outputs=outputs or None, timeout=timeout)
        if as_json:
            echo_json({"outputs": as_json_values(result), "device": result.device, "slot": result.slot})
        else:
            width = shutil.get_terminal_size().columns
            click.echo("\n".join(as_text(name, array, width) for name, array in result.items()))
