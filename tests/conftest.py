"""One warm evaluator for all tests that need nothing but verdicts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_task import write_task

from tasks.local import LocalEvaluator


@pytest.fixture(scope="session", autouse=True)
def own_timing_lock(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests do not wait for a search that runs on this machine, nor hold it up."""
    os.environ["XDG_RUNTIME_DIR"] = str(tmp_path_factory.mktemp("runtime"))


@pytest.fixture(scope="session")
def evaluator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEvaluator]:
    """A LocalEvaluator on the tiny task."""
    task = write_task(tmp_path_factory.mktemp("tasks") / "rowscale")
    made = LocalEvaluator(task, rounds=4)
    yield made
    made.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` are skipped where there is no NVIDIA device."""
    if Path("/dev/nvidia0").exists():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))
