"""What model calls came to: from the provider's usage to `ksearch cost`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
from fakes import ScriptedModel, compiled, edits, insert, program, scripted, start
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from pydantic import ValidationError
from small_runs import ksearch
from sqlite_utils import Database

from graph.costing import Price, read_prices
from graph.report import label_of
from state.archive import Archive
from state.effects import CallKey, Prompt, Reply, Spending
from state.settings import Settings
from tasks.playbook import LABEL

CALL = CallKey(run="r1", branch="main", node="instantiate", ordinal=0, role="coder", prompt_hash="q1")
PROMPT = Prompt(template="coder.md.j2@1", variables="{}", text="write")
FULL = Reply(text="t", model="openai:m", input_tokens=1000, output_tokens=300, cached_tokens=400, reasoning_tokens=200,
             finish="length")  # fmt: skip


def test_all_counts_of_a_reply_are_kept_and_added(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "k.db", clock=iter(range(0, 1000, 10)).__next__)
    for ordinal in (0, 1):
        key = CALL.model_copy(update={"ordinal": ordinal})
        assert archive.reply(key, PROMPT, lambda: FULL) == (FULL, 10)
        assert archive.reply(key, PROMPT, lambda: pytest.fail("paid twice")) == (FULL, 10)
    assert archive.spending("r1") == [
        Spending(role="coder", model="openai:m", calls=2, input_tokens=2000, cached_tokens=800, output_tokens=600,
                 reasoning_tokens=400, cut_off=2, seconds=20)
    ]  # fmt: skip
    assert archive.spending("r2") == []
    archive.close()


def test_a_database_from_before_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "k.db"
    archive = Archive(path)
    archive.reply(CALL, PROMPT, lambda: Reply(text="t", model="playbook", input_tokens=3))
    archive.close()
    database = Database(path)
    for column in ("cached_tokens", "reasoning_tokens", "finish"):
        database.execute(f"ALTER TABLE model_calls DROP COLUMN {column}")
    database["_sqlite_migrations"].delete_where("name = 'accounts'")
    database.close()
    archive = Archive(path)
    reply, _ = archive.reply(CALL, PROMPT, lambda: pytest.fail("paid twice"))
    assert reply == Reply(text="t", model="playbook", input_tokens=3)
    assert archive.spending("r1")[0].input_tokens == 3
    archive.close()


def test_usage_reaches_the_archive(tmp_path: Path) -> None:
    services, _, _ = scripted(tmp_path / "k.db", [edits(insert("one", 0.5)), edits()], [])
    details: dict[str, Any] = {"input_token_details": {"cache_read": 4}, "output_token_details": {"reasoning": 5}}
    said = AIMessage(
        program("1.5"), response_metadata={"finish_reason": "stop"},
        usage_metadata={"input_tokens": 10, "output_tokens": 20, "total_tokens": 30, **details},
    )  # fmt: skip
    services.coder = GenericFakeChatModel(messages=iter([said]))
    start(compiled(services), budget=1)
    archive = Archive(tmp_path / "k.db")
    (coder,) = [spent for spent in archive.spending("run") if spent.role == "coder"]
    archive.close()
    assert (coder.input_tokens, coder.cached_tokens, coder.output_tokens, coder.reasoning_tokens) == (10, 4, 20, 5)


def test_dollars_count_what_was_cached_apart() -> None:
    spent = Spending(role="coder", model="m", calls=1, input_tokens=1_000_000, cached_tokens=250_000,
                     output_tokens=500_000, reasoning_tokens=100_000, cut_off=0, seconds=1)  # fmt: skip
    assert Price(input=2, output=8).of(spent) == pytest.approx(6.0)
    assert Price(input=2, output=8, cached=0.4).of(spent) == pytest.approx(5.6)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('["m"]\ninput = 1', "m.output"),
        ('["m"]\ninput = -1\noutput = 1', "m.input"),
        ('["m"]\ninput = 1\noutput = nan', "m.output"),
        ('["m"]\ninput = 1\noutput = 1\nmore = 1', "m.more"),
        ("m = 3", "m: "),
        ("m = ", "prices.toml"),
    ],
)
def test_wrong_prices_are_named(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    with pytest.raises(typer.BadParameter, match=r"prices\.toml") as raised:
        read_prices(path)
    assert said in str(raised.value)


def test_the_command_says_what_has_no_price(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "k.db")
    archive.save_run("r1", {"task": "t", "status": "paused"})
    archive.reply(CALL, PROMPT, lambda: FULL)
    archive.close()
    (tmp_path / "prices.toml").write_text('["openai:m"]\ninput = 1\noutput = 10\n')

    def cost(*options: str) -> subprocess.CompletedProcess[str]:
        return ksearch("cost", "r1", "--db", tmp_path / "k.db", *options, cwd=tmp_path)

    assert "no price for openai:m" in cost().stdout
    priced = cost("--prices", "prices.toml", "--json")
    assert priced.returncode == 0, priced.stderr
    (row,) = json.loads(priced.stdout)
    assert (row["usd"], row["calls"], row["cut_off"]) == (pytest.approx(0.004), 1, 1)
    assert cost("--prices", "none.toml").returncode == 2


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("most", [1, 2, 5, 9])
def test_no_call_passes_the_cap(tmp_path: Path, most: int, samples: int) -> None:
    plans = [edits(insert(f"one {turn}", 0.5)) for turn in range(20)]
    programs = [program(f"{score}.5") for score in range(1, 40)]
    services, _, _ = scripted(tmp_path / "k.db", plans, programs)
    state = start(compiled(services), budget=30, stagnation=2, max_calls=most, samples=samples)
    archive = Archive(tmp_path / "k.db")
    assert sum(spent.calls for spent in archive.spending("run")) == most == state["asked"]["calls"]
    archive.close()
    assert state["stop_reason"] == f"the limit of {most} model calls is reached"


def test_tokens_end_a_run(tmp_path: Path) -> None:
    services, _, _ = scripted(tmp_path / "k.db", [edits(insert("one", 0.5))] * 9, [])
    usage: Any = {"input_tokens": 10, "output_tokens": 20, "total_tokens": 30}
    said = [AIMessage(program(f"{score}.5"), usage_metadata=usage) for score in range(1, 9)]
    services.coder = GenericFakeChatModel(messages=iter(said))
    state = start(compiled(services), budget=30, max_tokens=61)
    assert (state["asked"]["tokens"], state["evaluations"]) == (90, 3)
    assert state["stop_reason"] == "the limit of 61 tokens is reached"


def test_another_model_takes_over_at_the_evaluation_that_was_said(tmp_path: Path) -> None:
    services, _, _ = scripted(tmp_path / "k.db", [edits(insert("one", 0.5))], [program("1.5"), program("2.5")])
    later = ScriptedModel(replies=[program("3.5"), edits(), edits(), edits(), edits()])
    services.later = later
    state = start(compiled(services), budget=9, stagnation=3, switch_at=2, switch_to="other", max_calls=4)
    archive = Archive(tmp_path / "k.db")
    calls = {(spent.role, spent.model): spent.calls for spent in archive.spending("run")}
    archive.close()
    assert state["evaluations"] == 3
    assert calls == {("world_model", "playbook"): 1, ("coder", "playbook"): 2, ("coder", "other"): 1}


@pytest.mark.parametrize("half", [{"switch_at": 5}, {"switch_to": "playbook"}])
def test_a_switch_needs_both_its_halves(half: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="go together"):
        Settings(**half)
    assert Settings(switch_at=5, switch_to="playbook:shuffle=1", model="openai:m").models == (
        "openai:m", "playbook:shuffle=1",
    )  # fmt: skip
    assert label_of(Settings(switch_at=5, switch_to="playbook", model="openai:m")) == LABEL
