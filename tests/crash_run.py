"""Kills the scripted search at each of its windows in turn, lets it go on, and compares; prints JSON.

    python tests/crash_run.py FOLDER FIRST STRIDE [sync|async] [operator]

Children are forked from this process, which has imported everything and has started no thread.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import signal
import sys
import traceback
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from crash_search import RUN, Place, Probe, advance

from state.archive import Archive
from state.database import connect
from state.edits import apply
from state.tree import SearchTree, new_tree

SECOND = 37
"""Every so manieth window the resumed process is killed as well, as far into its life as this number."""
OUTCOME = ("evaluations", "attempts", "turns", "best", "result", "stop_reason", "tree", "rejected", "words", "branch")


def live(place: Place, fatal: int | None, durability: str) -> int:
    """One process's life in a child; returns its exit status, negative when a signal ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            probe = Probe(place, fatal)
            state = advance(place, probe, durability)
            outcome = {key: state[key] for key in OUTCOME}
            (place.folder / "outcome").write_text(
                json.dumps({"state": outcome, "windows": probe.names, "passed": probe.passed})
            )
            code = 0
        except BaseException:  # noqa: BLE001
            (place.folder / "traceback").write_text(traceback.format_exc())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def committed(place: Place) -> int:
    """Number of paid effects that the database holds."""
    if not place.database.exists():
        return 0
    with closing(connect(place.database)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        paid = tables & {"model_calls", "verdicts", "baselines"}
        return sum(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in paid)


def finished(place: Place) -> dict[str, Any]:
    """All that must be equal in every history of the run."""
    archive = Archive(place.database)
    with closing(archive):
        events = archive.events(RUN, "main")
        row = {key: value for key, value in archive.runs()[0].items() if key not in ("created", "updated")}
    outcome = json.loads((place.folder / "outcome").read_text())["state"]
    title = outcome["tree"]["nodes"][0]["intent"]["title"]
    tree = apply(new_tree(title), list(events)).tree
    return {
        "events": [event.model_dump(mode="json") for event in events],
        "row": row,
        "state": outcome,
        "log gives the tree": tree == SearchTree.model_validate(outcome["tree"]),
        "effects": sorted(set(place.paid())),
    }


def killed_at(window: int, place: Place, expected: dict[str, Any], durability: str) -> str:
    """What is wrong after a kill at this window, or nothing."""
    allowed: Counter[str] = Counter(expected["effects"])
    lives: list[int | None] = [window, SECOND, None] if window % 5 == 0 else [window, None]
    for fatal in lives:
        status = live(place, fatal, durability)
        if status == 0:
            break
        if status != -signal.SIGKILL or fatal is None:
            why = place.folder / "traceback"
            return why.read_text() if why.exists() else f"exit status {status}"
        paid, kept = place.paid(), committed(place)
        if len(paid) - sum(allowed.values()) + len(expected["effects"]) > kept:
            allowed[paid[-1]] += 1
    repeated = Counter(place.paid()) - allowed
    if repeated:
        return f"repeated although they were committed: {dict(repeated)}"
    result = finished(place)
    return "; ".join(difference(key, expected[key], result[key]) for key in expected if result[key] != expected[key])


def difference(name: str, expected: Any, found: Any) -> str:
    """Where two JSON values differ first."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = [key for key in {**expected, **found} if expected.get(key) != found.get(key)]
        return difference(f"{name}.{keys[0]}", expected.get(keys[0]), found.get(keys[0]))
    if isinstance(expected, list) and isinstance(found, list):
        pairs = zip([*expected, None], [*found, None], strict=False)
        index, (old, new) = next((index, pair) for index, pair in enumerate(pairs) if pair[0] != pair[1])
        return f"{name}[{index}]: {new!r} instead of {old!r} ({len(found)} for {len(expected)})"
    return f"{name}: {found!r} instead of {expected!r}"


def main(folder: Path, first: int, stride: int, durability: str = "sync", model: str = "") -> None:
    operated = model == "operator"
    undisturbed = Place(folder / "undisturbed", operated)
    undisturbed.folder.mkdir(parents=True)
    if live(undisturbed, None, durability) != 0:
        raise SystemExit((undisturbed.folder / "traceback").read_text())
    history = json.loads((undisturbed.folder / "outcome").read_text())
    names = history["windows"]
    expected = finished(undisturbed)
    assert len(undisturbed.paid()) == len(expected["effects"]), "an effect was paid twice without any kill"
    problems: dict[str, str] = {}
    gc.freeze()
    for window in range(first, len(names), stride):
        place = Place(folder / f"window{window}", operated)
        place.folder.mkdir()
        problem = killed_at(window, place, expected, durability)
        if problem:
            problems[f"{window} {names[window]}"] = problem
        shutil.rmtree(place.folder)
    kinds = Counter(names[first::stride])
    found = {"windows": len(names), "passed": history["passed"], "tested": kinds, "effects": expected["effects"]}
    print(json.dumps({**found, "problems": problems}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
