"""What a task needs of a machine, and how the list of tasks says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny_task import REFERENCE, TOML, write_task

from graph.tasking import OTHERS, tasks_view
from tasks.errors import TaskError
from tasks.needs import Packages, devices, packages
from tasks.sources import SOURCES

IMPORTS = """
import math
import packaged.inner as inside
from helper import something
def fast(x, s):
    from flashinfer.gemm import mm
    import packaged
"""


def test_packages_are_what_the_tasks_files_import(tmp_path: Path) -> None:
    assert packages(write_task(tmp_path / "plain")) == Packages((), ())
    write_task(tmp_path / "task")
    (tmp_path / "task" / "helper.py").write_text(
        "import numpy\ntry:\n    import scipy\nexcept ImportError:\n    pass\n"
    )
    task = write_task(tmp_path / "task", IMPORTS + REFERENCE, 'files = ["helper.py"]\n' + TOML)
    assert packages(task) == Packages(needed=("packaged",), optional=("flashinfer", "scipy"))
    broken = write_task(tmp_path / "broken", REFERENCE + "\ndef (\n")
    with pytest.raises(TaskError, match=r"broken/reference\.py: cannot be parsed"):
        packages(broken)


@pytest.mark.parametrize(
    ("languages", "places", "counts"),
    [
        ('["cpp"]', ("", ""), {"cpu": 2}),
        ('["cpp", "triton"]', ("cpu", "cuda"), {"cpu": 1, "cuda": 1}),
        ('["python"]', ("", "cuda"), {"cpu": 1, "cuda": 2}),
        ('["triton"]', ("cpu", ""), {"cuda": 1}),
        ('["cpp", "cuda"]', ("cuda", "cuda"), {"cuda": 2}),
    ],
)
def test_workloads_are_counted_on_the_devices_that_they_can_run_on(
    tmp_path: Path, languages: str, places: tuple[str, str], counts: dict[str, int]
) -> None:
    toml = TOML.replace('languages = ["cpp"]', f"languages = {languages}")
    for name, place in zip(("wide", "tall"), places, strict=True):
        toml = toml.replace(f'name = "{name}"', f'name = "{name}"\n' + (f'device = "{place}"' if place else ""))
    assert devices(write_task(tmp_path / "task", toml=toml)) == counts


ROW: dict[str, Any] = {
    "name": "a_task_with_a_name_longer_than_any_column_of_a_narrow_screen_has_room_for", "title": "What it computes",
    "origin": "someone's data set", "languages": ["python", "cuda"], "playbook": {"cuda": 7},
    "devices": {"cpu": 4, "cuda": 48}, "packages": {"needed": [], "optional": ["flashinfer"]},
}  # fmt: skip


@pytest.mark.parametrize("width", [80, 120])
def test_the_list_of_tasks_says_what_each_needs(width: int) -> None:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(tasks_view([ROW, {**ROW, "packages": {"needed": ["flashlib"], "optional": []}}]))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    flat = "".join(capture.get().split())
    for part in ("(optional)", "flashlib", "48", "(7)", "data"):
        assert part in flat, part
    assert all(OTHERS[prefix][0] in capture.get() for prefix in SOURCES)
