"""A task folder whose evaluations are quick, and the installed commands as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

BIN = Path(sys.executable).parent
KSEARCH = str(BIN / "ksearch")
PATIENCE_S = 240
"""Longest wait for anything; the machine may be slow, so no test asserts on time."""
SMALL = {
    "rows = 256, columns = 1024": "rows = 16, columns = 64",
    "rows = 64, columns = 8192": "rows = 4, columns = 128",
    "rows = 2048, columns = 384": "rows = 32, columns = 32",
    "rows = 333, columns = 1001": "rows = 9, columns = 33",
}
INTENTS = """
[defaults]
lanes = 1
parallel = false

[[intents]]
key = "eight"
title = "Eight partial sums"
description = "One partial sum per lane."
priority = 0.7
template = "kernel.cpp.j2"
variants = [{ lanes = 8 }, { lanes = 4 }, { lanes = 2 }]

[[intents]]
key = "sixteen"
title = "Sixteen partial sums"
description = "Twice as many lanes."
priority = 0.5
template = "kernel.cpp.j2"
variants = [{ lanes = 16 }, { lanes = 32 }]

[[intents]]
key = "parallel"
title = "Rows over the cores"
description = "A share of the rows for each core."
priority = 0.3
template = "kernel.cpp.j2"
params = { parallel = true }

[[rules]]
after = "eight"
prune = ["parallel"]
reason = "too little work for two cores"
"""


def environment(**more: str) -> dict[str, str]:
    """This process's environment, without what would choose a database, a key or tracing."""
    dropped = ("KSEARCH_", "OPENAI_", "GOOGLE_", "LANGSMITH_", "LANGCHAIN_", "LANGGRAPH_", "COLUMNS")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    return {**kept, **more}


def ksearch(*arguments: object, cwd: Path, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """A command that has ended."""
    return subprocess.run(
        [KSEARCH, *map(str, arguments)], cwd=cwd, input=stdin, env=environment(**env), capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip


def small_task(folder: Path, name: str = "rows") -> Path:
    """A task folder as `ksearch new` makes it, with tiny workloads and three root intents."""
    made = ksearch("new", name, cwd=folder)
    assert made.returncode == 0, made.stderr
    toml = folder / name / "task.toml"
    text = toml.read_text()
    for before, after in SMALL.items():
        assert before in text
        text = text.replace(before, after)
    toml.write_text(text)
    (folder / name / "playbook" / "cpp" / "intents.toml").write_text(INTENTS)
    return folder / name


def until(happened: Callable[[], bool], what: str) -> None:
    """Waits for something that must happen."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"waited {PATIENCE_S} s until {what}"
        time.sleep(0.05)
