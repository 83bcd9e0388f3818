"""`parley operators`: who may act over HTTP."""

import typer

from schemas.errors import Misconfigured
from workers.cli.edge import run
from workers.cli.output import print_json, print_line
from workers.cli.usage import Json

group = typer.Typer(no_args_is_help=True, help="Tokens for the operators' HTTP routes.")


class UnusableName(Misconfigured):
    """No operator can be called so."""


@group.command()
def token(
    name: str = typer.Argument(help="Who gets it; the audit names them so."), as_json: Json = False
) -> None:
    """Make a token: it is shown once; the line belongs into the file that PARLEY_OPERATOR_TOKENS_FILE names."""
    run(_token(name, as_json))


async def _token(name: str, as_json: bool) -> None:
    from workers.api.operators import new_token

    try:
        made, line = new_token(name)
    except ValueError as error:
        raise UnusableName(f"{name!r} is no operator's name: {error}") from None
    if as_json:
        print_json({"name": name, "token": made, "line": line})
        return
    print_line(f"token, for {name} alone:  {made}")
    print_line(f"line for the file:  {line}")
