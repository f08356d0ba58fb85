"""A command that holds commands: `pool` itself, `pool bench`, `pool systemd`."""

import click

__all__ = ["Group"]

LONGEST = 200  # characters of a command's first sentence


class Group(click.Group):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole first sentences: click's own end with an ellipsis where the line ends."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, each.get_short_help_str(LONGEST)) for name, each in commands if each is not None]
            )
