"""Options that many commands share."""

from typing import Annotated

import typer

Reason = Annotated[str | None, typer.Option("--reason", help="For those who ask later.")]
PriorityName = Annotated[str, typer.Argument(help="critical, high, normal, low, background")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Rows at most.")]
Sort = Annotated[
    str | None, typer.Option("--sort", help="Order of the list, such as -created_at (descending).")
]
