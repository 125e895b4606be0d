"""The commands that look: runs, tree, show, best."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from graph.console import DB, DONE, FAILED, USAGE, Db, Json, RunId, complain, console, existing, output, say
from graph.programs import code_view, diff_view, verdict_view, vouching_view
from graph.report import held_out_failure, label, result_view, runs_table, tree_view, vouchers
from graph.running import Ended, Runs, Status
from graph.searching import best_verdict
from state.edits import Attempt
from state.effects import Purpose
from state.program import SUFFIX, Program
from state.search import Best, SearchState
from state.settings import Settings
from state.tree import SearchTree, TreeNode
from state.verdict import UNVERIFIED, Passed, Verdict, score_of, voucher
from tasks.task import find_task

PURPOSES: dict[Purpose, str] = {
    "attempt": "the attempt", "seed": "the seed program", "confirm": "its confirmation",
    "held_out": "on held-out inputs",
}  # fmt: skip


def runs(db: Db = DB, as_json: Json = False) -> None:
    """List the runs, the newest first."""
    with existing(db) as opened:
        rows = [_row(opened, row) for row in opened.archive.runs()]
    output(rows, runs_table(rows), as_json)


def _row(opened: Runs, row: dict[str, Any]) -> dict[str, Any]:
    names = ("run", "task", "status", "best_score", "evaluations", "model_calls", "budget", "model", "world_model",
             "coder", "attempts", "best_program", "branch", "created", "updated")  # fmt: skip
    best = row["best_program"]
    return {**{name: row[name] for name in names}, "status": opened.status(row["run"]),
            "best_receipt": None if best is None else opened.archive.voucher(best),
            "short": opened.short(row["run"])}  # fmt: skip


def tree(run_id: RunId, db: Db = DB, as_json: Json = False) -> None:
    """Print a run's search tree."""
    with existing(db) as opened:
        found = opened.find(run_id)
        state = _state(opened, found)
        receipts = vouchers(state, opened.archive)
        status = opened.status(found)
    note = label(state)
    said = [*([Text(note, "yellow")] if note else []), *_waiting(status)]
    view = Group(tree_view(state, receipts.__getitem__), *said)
    plain = {**state["tree"], "best": state["best"], "action": state["action"], "label": note, "receipts": receipts,
             "status": status}  # fmt: skip
    output(plain, view, as_json)


def show(
    run_id: RunId,
    what: Annotated[str | None, typer.Argument(help="A node (n3) or a program's id; the run when left out.")] = None,
    db: Db = DB,
    as_json: Json = False,
) -> None:
    """Show a run, an intent, or a program.

    Of a program: verdicts, receipt, code, and the difference to its parent.
    """
    with existing(db) as opened:
        found = opened.find(run_id)
        state = _state(opened, found)
        if what is None:
            verdict = best_verdict(opened, Ended(opened.status(found), state))
            plain = None if verdict is None else _with_receipt(verdict)
            whole = Group(_run_view(opened, state, verdict), *_waiting(opened.status(found)))
            output({**state, "best_verdict": plain}, whole, as_json)
            return
        value, view = _shown(opened, state, what)
    output(value, view, as_json)


def _waiting(status: Status) -> list[Text]:
    """A line for a run that an operator holds up."""
    return [Text("Now: waiting for a reply (ksearch prompt shows to what)")] if status == "waiting for a reply" else []


def _run_view(opened: Runs, state: SearchState, verdict: Verdict | None) -> RenderableType:
    """The run's result, with what vouches for its best."""
    view = result_view(state, verdict, opened.archive.voucher, whole=True)
    return view if verdict is None else Group(view, vouching_view(verdict))


def _with_receipt(verdict: Verdict) -> dict[str, Any]:
    return {**verdict.model_dump(mode="json"), "receipt_id": voucher(verdict)}


def _shown(opened: Runs, state: SearchState, what: str) -> tuple[dict[str, Any], RenderableType]:
    nodes = SearchTree.model_validate(state["tree"])
    attempts = [event for event in opened.archive.events(state["run"], state["branch"]) if event.kind == "attempt"]
    if what in nodes:
        node = nodes[what]
        mine = [{**event.model_dump(mode="json"), "receipt_id": _voucher(opened, event)}
                for event in attempts if event.node == node.id]  # fmt: skip
        value: dict[str, Any] = {"node": node.model_dump(mode="json"), "attempts": mine, "program": None}
        view: list[RenderableType] = [_intent(node), *(Text(_tried(event)) for event in mine)]
        if node.program_id is not None:
            value["program"], code = _program(opened, nodes, node, node.program_id)
            view.append(code)
        return value, Group(*view)
    matches = sorted({e.program_id for e in attempts if e.program_id and e.program_id.startswith(what)})
    if len(matches) != 1:
        raise typer.Exit(complain(f"{what!r} is neither a node of this run nor the id of one of its programs", USAGE))
    owner = next(nodes[event.node] for event in attempts if event.program_id == matches[0])
    value, code = _program(opened, nodes, owner, matches[0])
    return {"node": owner.model_dump(mode="json"), "program": value}, Group(_intent(owner), code)


def _intent(node: TreeNode) -> Text:
    score = "" if node.score is None else f", J {node.score:.1f}"
    text = Text(f"{node.id} {node.intent.title} ({node.status}, V {node.priority:.2f}{score})", "bold")
    text.append(f"\n{node.intent.description}\n" if node.intent.description else "\n", "not bold")
    return text.append(f"Evidence: {node.evidence}\n" if node.evidence else "", "italic")


def _tried(event: dict[str, Any]) -> str:
    mark = f"  {event['receipt_id'] or ''}{'  best' if event['best'] else ''}".rstrip()
    score = f" J {event['score']:.1f}" if event["score"] else ""
    return f"  {event['program_id'] or '-':<16} {event['verdict']}{score}{mark}"


def _voucher(opened: Runs, event: Attempt) -> str | None:
    """What vouches for an attempt; None when there was nothing to judge."""
    if event.program_id is None or event.verdict in ("duplicate", "unusable"):
        return None
    return opened.archive.voucher(event.program_id)


def _program(opened: Runs, nodes: SearchTree, node: TreeNode, program_id: str) -> tuple[dict[str, Any], RenderableType]:
    program = opened.archive.program(program_id)
    verdicts = opened.archive.verdicts_of(program_id)
    source = nodes.source_of(node.id)
    parent = None if source is None or source.program_id is None else opened.archive.program(source.program_id)
    value = {
        "id": program.id,
        "language": program.language,
        "source": program.source,
        "parent": None if parent is None else parent.id,
        "verdicts": [{"purpose": purpose, **_with_receipt(verdict)} for purpose, verdict in verdicts],
    }
    parts: list[RenderableType] = [Text(f"\nProgram {program.id}", "bold"), code_view(program)]
    if parent is not None:
        parts += [Text(f"\nAgainst its parent {parent.id}", "bold"), diff_view(program, parent)]
    for purpose, verdict in verdicts:
        parts += [Text(f"\nVerdict ({PURPOSES[purpose]})", "bold"), verdict_view(verdict)]
    return value, Group(*parts)


def best(
    run_id: RunId,
    out: Annotated[Path | None, typer.Option(help="Write the program and result.json into this folder.")] = None,
    db: Db = DB,
    as_json: Json = False,
) -> None:
    """Print or export the best program.

    With --out, the program and what vouches for it are written into a folder.
    """
    with existing(db) as opened:
        found = opened.find(run_id)
        state = _state(opened, found)
        if state["best"] is None:
            raise typer.Exit(complain(f"run {opened.short(found)} has no program that passed yet", FAILED))
        program = opened.archive.program(Best.model_validate(state["best"]).program)
        verdict = best_verdict(opened, Ended("done", state))
    result = _result(state, program, verdict) if out is not None or as_json else {}
    if out is not None:
        _write(out, program, result)
        say(f"wrote {out / ('kernel' + SUFFIX[program.language])} and {out / 'result.json'}")
    if verdict is None or verdict.receipt is None:
        complain(f"note: program {program.id} is {UNVERIFIED}: no receipt says how it was measured", DONE)
    if (failure := held_out_failure(state)) is not None:
        complain(f"note: program {program.id} did not pass on held-out inputs: {failure}", DONE)
    if out is not None:
        return
    if as_json:
        typer.echo(json.dumps({**result, "source": program.source}, indent=1))
    else:
        console.print(code_view(program))


def _result(state: SearchState, program: Program, verdict: object) -> dict[str, Any]:
    settings = Settings.model_validate(state["settings"])
    task = find_task(settings.task)
    result: dict[str, Any] = {
        "task": task.name, "entry_point": task.entry_point, "run": state["run"], "program": program.id,
        "label": label(state), "march": settings.march, "score": None, "timings": [], "threads": None,
        "receipt": None, "receipt_id": UNVERIFIED, "held_out": state["result"],
    }  # fmt: skip
    if isinstance(verdict, Passed):
        plain = verdict.model_dump(mode="json")
        result |= {
            "score": score_of(verdict),
            "timings": plain["timings"],
            "receipt": plain["receipt"],
            "receipt_id": voucher(verdict),
        }
        result["threads"] = None if verdict.receipt is None else verdict.receipt.threads
    return result


def _write(folder: Path, program: Program, result: dict[str, Any]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"kernel{SUFFIX[program.language]}").write_text(program.source, encoding="utf-8")
        (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise typer.Exit(complain(f"--out {folder}: cannot be written ({error.strerror})", FAILED)) from None


def _state(opened: Runs, run: str) -> SearchState:
    state = opened.state(run)
    if "tree" not in state:
        short = opened.short(run)
        raise typer.Exit(complain(f"run {short} has only just begun; go on with: ksearch resume {short}", FAILED))
    return state
