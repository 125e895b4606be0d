"""What providers do to a call, played by a server of the tests on this machine, and what comes of it."""

from __future__ import annotations

import threading
import time
from email.utils import formatdate

import pytest
from fakes import SCAFFOLD
from langchain_core.messages import HumanMessage
from openai_server import Act, Scripted, answers, cuts, fails, refuses, says, serving, stalls

from nodes.models import calling
from nodes.models.named import ModelError, ModelUnavailable, Options, model_named, server_url
from tasks.task import load_task

TASK = load_task(SCAFFOLD)
NAME = "openai:some-model"
PROMPT = [HumanMessage("Say something.")]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are short, no key is set, and no proxy is asked."""
    monkeypatch.setattr(calling, "_FIRST_WAIT_S", 0.001)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    calling.allow_waits()


def ask(script: Scripted, times: int = 1, **options: object) -> list[str]:
    """The texts of so many calls of one model."""
    model = model_named(NAME, TASK, Options(base_url=script.url, **options))  # type: ignore[arg-type]
    return [calling.call(model, NAME, PROMPT).text for _ in range(times)]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://h:8000", "http://h:8000/v1"),
        ("http://h:8000/", "http://h:8000/v1"),
        ("http://h:8000/v1", "http://h:8000/v1"),
        ("http://h:8000/v1/", "http://h:8000/v1"),
        ("https://h/openai/v1/chat/completions", "https://h/openai/v1"),
        ("https://h/other/", "https://h/other"),
    ],
)
def test_addresses_of_servers(given: str, meant: str) -> None:
    assert server_url(given) == meant


@pytest.mark.parametrize("given", ["", "h:8000", "ftp://h/v1", "http://"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(ModelError, match="base-url"):
        server_url(given)


def test_a_server_needs_no_key_and_gets_the_one_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(says("a"), says("b")) as script:
        assert ask(script) == ["a"]
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        assert ask(script) == ["b"]
        assert script.keys == ["none", "k"]
        assert script.paths == ["/v1/chat/completions"] * 2


def test_parameters_are_sent_only_where_they_are_set() -> None:
    with serving(says("a"), says("b")) as script:
        ask(script)
        ask(script, temperature=0.5, reasoning_effort="low", max_output_tokens=9)
    plain, full = script.requests
    assert not {"temperature", "reasoning_effort", "max_tokens", "max_completion_tokens"} & set(plain)
    assert (full["temperature"], full["reasoning_effort"], full["max_completion_tokens"]) == (0.5, "low", 9)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("field", ["temperature", "reasoning_effort", "max_completion_tokens"])
def test_a_parameter_that_is_refused_is_left_out_from_then_on(field: str, named: bool) -> None:
    with serving(refuses(field, named=named), says("a"), says("b")) as script:
        assert ask(script, 2, temperature=0.5, reasoning_effort="low", max_output_tokens=9) == ["a", "b"]
    assert [field in request for request in script.requests] == [True, False, False]
    assert len(script.requests[1]) == len(script.requests[0]) - 1, "the others are still sent"


def test_all_parameters_may_be_refused_one_after_the_other() -> None:
    acts = [refuses("max_completion_tokens"), refuses("temperature"), refuses("reasoning_effort"), says("a")]
    with serving(*acts) as script:
        assert ask(script, temperature=0.5, reasoning_effort="low", max_output_tokens=9) == ["a"]


@pytest.mark.parametrize(
    "acts",
    [
        [fails(429), says("a")],
        [fails(500), fails(502), fails(503), fails(529), says("a")],
        [cuts, says("a")],
        [stalls(1.5), says("a")],
        [answers({"choices": []}), says("a")],
        [answers({"choices": None}), says("a")],
        [answers([]), says("a")],
    ],
    ids=["busy", "broken", "cut", "stalled", "no choices", "null choices", "no object"],
)
def test_what_may_pass_is_asked_again(acts: list[Act]) -> None:
    with serving(*acts) as script:
        assert ask(script, timeout_s=0.5) == ["a"]
        assert len(script.requests) == len(acts)


def test_what_does_not_pass_ends_after_six_tries() -> None:
    with serving(*[fails(503, "overloaded")] * 9) as script:
        with pytest.raises(ModelUnavailable, match="overloaded"):
            ask(script)
        assert len(script.requests) == 6


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (fails(401, "wrong key"), "OPENAI_API_KEY"),
        (fails(403, "not yours"), "OPENAI_API_KEY"),
        (fails(404, "no such model"), "no such model"),
        (fails(400, "context length exceeded"), "context length"),
        (fails(429, "insufficient_quota: pay first", code="insufficient_quota"), "pay first"),
        (fails(429, "later", retry_after="86400"), "asks to wait 86400 s"),
    ],
)
def test_what_cannot_pass_ends_at_once(act: Act, said: str) -> None:
    with serving(act, says("a")) as script:
        with pytest.raises(ModelUnavailable, match=said):
            ask(script, temperature=0.5)
        assert len(script.requests) == 1


def test_a_server_that_says_when_is_asked_then(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    class Watch(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            return False

    monkeypatch.setattr(calling, "_stopping", Watch())
    date = formatdate(time.time() + 100, usegmt=True)
    acts = [fails(429, retry_after="7"), fails(503, retry_after=date), fails(429, retry_after="soon"), says("a")]
    with serving(*acts) as script:
        assert ask(script) == ["a"]
    assert 7.0 <= waits[0] <= 7.7
    assert 90.0 <= waits[1] <= 110.0
    assert waits[2] <= 1.0, "what makes no sense is a wait like any other"


def test_a_wait_ends_when_the_run_is_to_stop() -> None:
    with serving(fails(429, retry_after="500"), says("a")) as script:
        timer = threading.Timer(0.2, calling.end_waits)
        timer.start()
        with pytest.raises(ModelUnavailable, match="stopped while waiting"):
            ask(script)
        timer.join()
        calling.allow_waits()
        assert ask(script) == ["a"], "the next run waits again"


def test_a_refusal_and_a_cut_reply_are_replies() -> None:
    with serving(says("", refusal="I will not."), says("half", finish="length")) as script:
        assert ask(script, 2) == ["", "half"]


def test_a_server_that_is_not_there() -> None:
    with serving() as script:
        pass
    with pytest.raises(ModelUnavailable, match="did not answer"):
        ask(script)


def test_an_error_of_our_own_is_not_the_providers() -> None:
    class Broken:
        def invoke(self, messages: object) -> None:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        calling.call(Broken(), NAME, PROMPT)  # type: ignore[arg-type]
