"""`make studio`: the real server on the same file as the command line, driven as Studio drives it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient
from small_runs import BIN, KSEARCH, environment, ksearch, small_task, until

from state.database import connect, unpacked
from state.lease import Lease
from tasks import lock

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text()
QUIET = {"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1", "LANGGRAPH_NO_VERSION_CHECK": "true"}
HITL = {"action_requests", "review_configs"}
WORD = "two cores are not worth it here"

pytestmark = pytest.mark.timeout(900)


class Studio:
    """A folder with a server in it that can be killed and started again."""

    def __init__(self, folder: Path, proxy: str) -> None:
        self.folder = folder
        self.database = folder / "runs.db"
        self.log = folder / "server.log"
        self._proxy = proxy
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def start(self) -> SyncLangGraphClient:
        """The server answers."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        outward = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), self._proxy)
        local = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        command = [str(BIN / "langgraph"), "dev", "--no-reload", "--no-browser", "--port", str(port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--config", str(ROOT / "langgraph.json")], cwd=self.folder, stdout=log, stderr=log,
                start_new_session=True, env=environment(**QUIET, **outward, **local, KSEARCH_DB=str(self.database)),
            )  # fmt: skip
        until(self._answers, f"the server is up; see {self.log}")
        return get_sync_client(url=self.url)

    def _answers(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.log.read_text()
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/ok", trust_env=False).status_code == 200
        return False

    def kill(self) -> None:
        """The server and all that it started are gone, with no time to tidy up."""
        if self._process is None:
            return
        family = descendants(self._process.pid)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        until(lambda: not any(alive(pid) for pid in family), "the server's processes have ended")
        self._process = None

    def cli(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """A `ksearch` command on the server's database."""
        return ksearch(*arguments, cwd=self.folder, KSEARCH_DB=str(self.database))

    def busy(self, run: str) -> bool:
        """Whether some process works on the run."""
        return Lease(self.database, run).held_elsewhere()


def descendants(pid: int) -> list[int]:
    """The process, its children, theirs and so on."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in task.read_text().split()]
    return found


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def outside() -> Iterator[tuple[str, list[str]]]:
    """A proxy that lets nothing through, and the first line of whatever wanted to go out."""
    wanted: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def refuse() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with server.accept()[0] as connection:
                        wanted.append(connection.recv(200).decode(errors="replace").partition("\r\n")[0])

        threading.Thread(target=refuse, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", wanted


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory, outside: tuple[str, list[str]]) -> Iterator[Studio]:
    made = Studio(tmp_path_factory.mktemp("studio"), outside[0])
    small_task(made.folder)
    try:
        yield made
    finally:
        made.kill()


def form(studio: Studio, **given: Any) -> dict[str, Any]:
    """What a person fills in."""
    advanced = {"stagnation": 1, "threads": 1}
    return {"task": str(studio.folder / "rows"), "budget": 3, "advanced": advanced, **given}


def waiting(client: SyncLangGraphClient, run: str) -> dict[str, Any]:
    """The one request that the run waits with."""
    interrupts = client.threads.get_state(run)["interrupts"]
    assert len(interrupts) == 1
    value: dict[str, Any] = interrupts[0]["value"]
    assert value.keys() >= HITL and len(value["action_requests"]) > 0
    return value


def go_on(client: SyncLangGraphClient, run: str, reply: dict[str, Any] | None = None) -> dict[str, Any]:
    """The state after the run has gone on until it ends or waits again."""
    command = None if reply is None else {"resume": reply}
    client.runs.join(run, client.runs.create(run, "ksearch", command=command)["run_id"])
    values: dict[str, Any] = client.threads.get_state(run)["values"]
    return values


def finish(client: SyncLangGraphClient, run: str) -> dict[str, Any]:
    """The state of the run when it is done; every edit on the way is approved."""
    for _ in range(40):
        state = client.threads.get_state(run)
        if state["interrupts"]:
            request = waiting(client, run)
            decisions = [{"type": "approve"} for _ in request["action_requests"]]
            go_on(client, run, {"pending": request["pending"], "decisions": decisions})
        elif state["next"]:
            go_on(client, run)
        else:
            values: dict[str, Any] = state["values"]
            return values
    raise AssertionError("the run does not end")


def decided(request: dict[str, Any]) -> dict[str, Any]:
    """Approves the first intent, ranks the second before it, rejects the third."""
    first, second, third = request["action_requests"]
    assert [action["args"]["title"] for action in (first, second, third)] == [
        "Eight partial sums", "Sixteen partial sums", "Rows over the cores",
    ]  # fmt: skip
    edited = {"name": second["name"], "args": {**second["args"], "priority": 0.95}}
    return {
        "pending": request["pending"],
        "decisions": [
            {"type": "approve"},
            {"type": "edit", "edited_action": edited},
            {"type": "reject", "message": WORD},
        ],
    }


def prompts(database: Path, run: str) -> list[str]:
    """What the world model was told, in order, as the archive has it."""
    with closing(connect(database)) as connection:
        rows = connection.execute(
            "SELECT variables FROM model_calls WHERE run = ? AND role = 'world_model' ORDER BY ordinal", [run]
        ).fetchall()
    return [unpacked(row[0]) for row in rows]


def check_form(client: SyncLangGraphClient) -> None:
    """The form is small and every field of it has a default."""
    (assistant,) = client.assistants.search()
    schema = client.assistants.get_schemas(assistant["assistant_id"])["input_schema"]
    assert schema is not None
    assert list(schema["properties"]) == ["task", "model", "budget", "approve", "advanced"]
    assert all("default" in field for field in schema["properties"].values())
    assert schema["properties"]["approve"]["enum"] == ["never", "prunes", "edits"]


def test_a_run_is_stepped_edited_killed_and_finished_in_the_server(studio: Studio) -> None:
    client = studio.start()
    check_form(client)
    run = client.threads.create()["thread_id"]
    created = client.runs.create(run, "ksearch", input=form(studio, approve="edits"))
    client.runs.join(run, created["run_id"])
    request = waiting(client, run)
    assert {item["action_name"] for item in request["review_configs"]} == {"insert"}

    stale = {**decided(request), "pending": "0123456789abcdef"}
    assert go_on(client, run, stale)["action"] is None
    assert "stale" in waiting(client, run)["problem"]

    with lock.timing():  # the evaluation that follows the answer cannot begin
        client.runs.create(run, "ksearch", command={"resume": decided(request)})
        until(lambda: client.threads.get_state(run)["next"] == ["instantiate"], "an intent is selected")
        until(lambda: studio.busy(run), "its first attempt has begun")
        before = client.threads.get_state(run)["values"]
        refused = studio.cli("resume", run)
        assert refused.returncode == 1 and "another process" in refused.stderr, refused.stderr
        assert json.loads(studio.cli("runs", "--json").stdout)[0]["status"] == "running"
        studio.kill()
        client = studio.start()  # which may go on by itself with what was in flight
        assert studio.cli("studio", run, "--url", studio.url).returncode == 0
        assert client.threads.get_state(run)["next"] == ["instantiate"]
        assert client.threads.get_state(run)["values"] == before
    nodes = before["tree"]["nodes"]
    assert [(n["intent"]["title"], n["priority"], n["author"]) for n in nodes[1:]] == [
        ("Eight partial sums", 0.7, "model"), ("Sixteen partial sums", 0.95, "person"),
    ]  # fmt: skip
    assert before["action"]["node"] == "n2"
    assert before["words"] == [f"on your insert of 'Rows over the cores': {WORD}"]
    state = finish(client, run)
    assert state["status"] == "done" and state["evaluations"] <= 3
    assert WORD in prompts(studio.database, run)[1]
    shown = json.loads(studio.cli("show", run, "--json").stdout)
    assert shown["tree"] == state["tree"] and shown["result"] == state["result"]
    assert studio.cli("resume", run).returncode == 0
    studio.kill()


def test_a_run_of_the_command_line_is_seen_and_finished_in_the_server(studio: Studio) -> None:
    client = studio.start()
    command = [KSEARCH, "run", "./rows", "--budget", "30", "--stagnation", "1", "--threads", "1"]
    with subprocess.Popen(
        command, cwd=studio.folder, env=environment(KSEARCH_DB=str(studio.database)), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        next(line for line in lines if line.startswith("[  1/30]"))
        process.send_signal(signal.SIGTERM)
        process.communicate()
    assert process.returncode == 75
    run = json.loads(studio.cli("runs", "--json").stdout)[0]["run"]
    registered = studio.cli("studio", run[:8], "--url", studio.url)
    assert registered.returncode == 0 and run in registered.stdout
    state = client.threads.get_state(run)
    assert 1 <= state["values"]["evaluations"] < 30 and state["next"]

    with Lease(studio.database, run):
        busy = client.runs.create(run, "ksearch")
        until(lambda: client.runs.get(run, busy["run_id"])["status"] in ("error", "success"), "the run is refused")
        assert client.runs.get(run, busy["run_id"])["status"] == "error"
        assert client.threads.get_state(run)["values"] == state["values"]
    assert "is being advanced by another process" in studio.log.read_text()
    assert finish(client, run)["status"] == "done"
    assert json.loads(studio.cli("runs", "--json").stdout)[0]["status"] == "done"
    studio.kill()


def test_a_run_of_the_server_is_finished_by_the_command_line(studio: Studio) -> None:
    client = studio.start()
    run = client.threads.create()["thread_id"]
    with lock.timing():
        client.runs.create(run, "ksearch", input=form(studio))
        until(lambda: studio.busy(run), "the baseline waits to be measured")
        studio.kill()
    resumed = studio.cli("resume", run)
    assert resumed.returncode == 0, resumed.stderr
    assert "playbook: no LLM; ideas and code are hand-written" in resumed.stdout
    assert json.loads(studio.cli("runs", "--json").stdout)[0]["evaluations"] > 0


def test_prompts_are_answered_in_the_server_and_by_the_command_line(studio: Studio) -> None:
    client = studio.start()
    run = client.threads.create()["thread_id"]
    client.runs.join(run, client.runs.create(run, "ksearch", input=form(studio, model="operator"))["run_id"])
    (interrupt,) = client.threads.get_state(run)["interrupts"]
    (prompt,) = interrupt["value"]["prompts"]
    assert interrupt["value"]["kind"] == "prompts" and "as a string" in interrupt["value"]["how"]
    assert prompt["text"] == studio.cli("prompt", run).stdout
    edits = {"edits": [{"kind": "insert", "parent": "n0", "title": "pasted", "priority": 0.5}]}
    client.runs.join(run, client.runs.create(run, "ksearch", command={"resume": json.dumps(edits)})["run_id"])
    assert [node["intent"]["title"] for node in client.threads.get_state(run)["values"]["tree"]["nodes"]][1:] == [
        "pasted"
    ]
    (studio.folder / "reply").write_text("no program")
    assert studio.cli("answer", run, "--file", "reply").returncode == 2
    taken = studio.cli("answer", run, "--file", "reply", "--anyway")
    assert taken.returncode == 75 and "unusable" in taken.stdout, taken.stderr
    state = client.threads.get_state(run)
    assert state["interrupts"][0]["value"]["prompts"][0]["role"] == "world_model", "the intent stagnated"
    studio.kill()


def test_a_server_on_another_database_is_told_from_one_on_ours(studio: Studio, tmp_path: Path) -> None:
    other = Studio(tmp_path, studio._proxy)
    other.start()
    try:
        refused = studio.cli("studio", "last", "--url", other.url)
    finally:
        other.kill()
    assert refused.returncode == 1
    assert "another database" in refused.stderr and f"KSEARCH_DB={studio.database}" in refused.stderr.replace("\n", "")


def test_nothing_of_all_this_went_out_or_complained(studio: Studio, outside: tuple[str, list[str]]) -> None:
    assert outside[1] == []
    log = studio.log.read_text()
    for complaint in ("Blocking call", "BlockingError", "Heads up", "unknown key", "Unknown key", "not a valid"):
        assert complaint not in log
    for name, value in QUIET.items():
        assert f"{name}={value}" in MAKEFILE
        assert json.loads((ROOT / "langgraph.json").read_text())["env"][name] == value


def test_the_packages_are_ours_from_any_folder(tmp_path: Path) -> None:
    names = ("state", "tasks", "prompts", "nodes", "graph")
    for name in names:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('not ours')")
    assert ksearch("tasks", cwd=tmp_path).returncode == 0
    code = f"import {', '.join(names)}, graph.build; print(*[m.__file__ for m in ({', '.join(names)})], sep='\\n')"
    ran = subprocess.run(
        [BIN / "python", "-c", code], cwd=tmp_path.parent, env=environment(), capture_output=True, text=True
    )
    assert ran.stdout.splitlines() == [str(ROOT / name / "__init__.py") for name in names], ran.stderr
