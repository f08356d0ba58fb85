"""`pool completion`: the shell completes commands, options, models and slots."""

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from pool.cli.failure import CommandFailed

__all__ = ["completion"]

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.option("--print", "print_only", is_flag=True, help="Print the script, and write no file.")
def completion(shell: str | None, print_only: bool) -> None:
    """Make SHELL complete the commands, models and slots of `pool`. Default: the shell in $SHELL.

    Writes the script where the shell finds it, into your home folder. Models and slots are those of the running pool.
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    made = get_completion_class(shell)
    if shell not in SHELLS or made is None:
        raise click.UsageError(f"name a shell: {', '.join(SHELLS)}; $SHELL is {os.environ.get('SHELL', '')!r}")
    script = made(click.Command("pool"), {}, "pool", "_POOL_COMPLETE").source()
    if print_only:
        click.echo(script)
        return
    path = _place(shell)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script, encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}; `pool completion {shell} --print` prints the script") from None
    click.echo(f"wrote {path}; a new shell completes `pool`")
    if shell == "zsh":
        click.echo(f"zsh looks there if ~/.zshrc has, before compinit: fpath=({path.parent} $fpath)")


def _place(shell: str) -> Path:
    """Where the shell looks by itself; zsh has no such place in a home folder."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return {
        "bash": data / "bash-completion/completions/pool",
        "zsh": data / "zsh/site-functions/_pool",
        "fish": config / "fish/completions/pool.fish",
    }[shell]
