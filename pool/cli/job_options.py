"""The options that say what a job is: shared by `pool submit` and `pool bench`."""

import click

__all__ = ["input_option", "signature_option"]

signature_option = click.option(
    "--signature", metavar="NAME", help="serving_default, or the only one, where this is left out."
)

input_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]VALUE",
    help="One input; may be repeated. The name may be left out where there is one input.",
)
