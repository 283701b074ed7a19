"""Groups of commands that list what they are about, if nothing else is asked."""

from __future__ import annotations

import click


class Listing(click.Group):
    """A group that lists, unless the first word is one of its commands."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)
