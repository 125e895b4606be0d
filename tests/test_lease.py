"""One process at a time on a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fakes import FakeServices

from graph.build import build_graph
from graph.checkpointer import Saver
from state.lease import Lease, RunBusy

ROOT = Path(__file__).parent.parent
RUN = "2f0e0d0c-0000-4000-8000-000000000003"
HOLD = """
import sys, time
from pathlib import Path
from state.lease import Lease
with Lease(Path(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run.db"), RUN], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_second_process_is_refused_by_name_and_changes_nothing(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    services = FakeServices(tmp_path / "run.db")
    saver = Saver(tmp_path / "run.db")
    graph = build_graph(services).compile(checkpointer=saver)
    config = {"configurable": {"thread_id": RUN}}
    with pytest.raises(RunBusy, match=rf"run {RUN} .*pid {holder.pid}.*nothing was changed"):
        graph.invoke({"task": "scaffold", "model": "playbook"}, config, durability="sync")
    assert services.evaluator.evaluated == []
    archive = services(RUN, services._made[RUN].settings).archive
    assert archive.event_count(RUN, "main") == 0
    assert archive.runs() == []
    assert graph.get_state(config).next == ("initialize",)


def test_a_killed_holder_leaves_no_lease(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    lease = Lease(tmp_path / "run.db", RUN)
    with pytest.raises(RunBusy), lease:
        pass
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    with lease:
        pass


def test_other_runs_are_free(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with Lease(tmp_path / "run.db", "another"), Lease(tmp_path / "other.db", RUN):
        pass


def test_it_is_reentrant_and_free_again_after_an_error(tmp_path: Path) -> None:
    lease, rival = Lease(tmp_path / "run.db", RUN), Lease(tmp_path / "run.db", RUN)
    with pytest.raises(ZeroDivisionError), lease, lease:
        with pytest.raises(RunBusy), rival:
            pass
        raise ZeroDivisionError
    with rival:
        pass


def test_a_thread_waits_for_another_of_its_process(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "run.db", RUN)
    order: list[str] = []

    def enter() -> None:
        with lease:
            order.append("second")

    with lease:
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
