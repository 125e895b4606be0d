"""The command that counts what a run's model calls came to."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from graph.console import DB, Db, Json, RunId, existing, output
from state.effects import Spending


class Price(BaseModel):
    """US dollars for a million tokens."""

    model_config = ConfigDict(extra="forbid")

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    """Reasoning included."""
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Input from the provider's cache; without it as any input."""

    def of(self, spent: Spending) -> float:
        """Dollars for these calls."""
        cached = self.input if self.cached is None else self.cached
        fresh = spent.input_tokens - spent.cached_tokens
        return (fresh * self.input + spent.cached_tokens * cached + spent.output_tokens * self.output) / 1e6


def cost(
    run_id: RunId,
    prices: Annotated[
        Path | None, typer.Option(help='TOML: ["openai:NAME"] with input, output, cached: dollars per million tokens.')
    ] = None,
    db: Db = DB,
    as_json: Json = False,
) -> None:
    """Count a run's model calls: tokens, seconds, and dollars where prices are given."""
    table = {} if prices is None else read_prices(prices)
    with existing(db) as opened:
        spendings = opened.archive.spending(opened.find(run_id))
    rows = [(spent, table[spent.model].of(spent) if spent.model in table else None) for spent in spendings]
    plain = [{**spent.model_dump(), "usd": usd} for spent, usd in rows]
    output(plain, _view(rows, prices), as_json)


def read_prices(path: Path) -> dict[str, Price]:
    """The prices by model. Raises typer.BadParameter that names the file and the key."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path}: {error}") from None
    found = {}
    for name, price in given.items():
        try:
            found[name] = Price.model_validate(price)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, (name, *first["loc"])))
            raise typer.BadParameter(f"{path}: {place}: {first['msg']}") from None
    return found


def _view(rows: list[tuple[Spending, float | None]], prices: Path | None) -> RenderableType:
    table = Table("role", "model")
    for name in ("calls", "input", "cached", "output", "reasoning", "cut off", "seconds", "USD"):
        table.add_column(name, justify="right")
    for spent, usd in rows:
        counts = (spent.calls, spent.input_tokens, spent.cached_tokens, spent.output_tokens, spent.reasoning_tokens,
                  spent.cut_off)  # fmt: skip
        money = "" if usd is None else f"{usd:.4f}"
        table.add_row(spent.role, spent.model, *map(str, counts), f"{spent.seconds:.1f}", money)
    unpriced = sorted({spent.model for spent, usd in rows if usd is None})
    known = sum(usd for _, usd in rows if usd is not None)
    said = [f"{sum(spent.calls for spent, _ in rows)} calls"]
    if prices is not None:
        said.append(f"{known:.4f} USD by {prices}")
    if unpriced:
        said.append(f"no price for {', '.join(unpriced)}")
    return Group(table, Text("; ".join(said)))
