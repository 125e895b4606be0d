"""The command line: `ksearch --help` lists the commands."""

from __future__ import annotations

import sys
from pathlib import Path

import typer
from dotenv import load_dotenv
from pydantic import ValidationError

from graph.collecting import collect
from graph.console import FAILED, PARKED, USAGE, complain
from graph.costing import cost
from graph.exporting import export
from graph.grading import grade_submission
from graph.inspecting import best, runs, show, tree
from graph.judging import evaluate
from graph.operating import answer, prompt
from graph.people import approve, edit, studio
from graph.searching import resume, run
from graph.tasking import check, draw_graph, new, tasks
from graph.verifying import verify
from nodes.models.named import ModelError, ModelUnavailable
from prompts.rendering import PromptError
from state.database import ArchiveError, DiskFull
from state.lease import RunBusy
from tasks.evaluator import EvaluatorUnavailable
from tasks.task import TaskError
from tasks.tool import ToolMissing

app = typer.Typer(
    no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None,
    help="Search for faster kernels: a world model plans over a tree of intents, a coder writes programs, an "
    "evaluator compiles, checks and times them.",
    epilog="Exit codes: 0 done, 1 failed, 2 wrong usage, 75 stopped and resumable.",
)  # fmt: skip

for command in (run, resume, collect, runs, tree, show, best, approve, edit, tasks, new, check, studio, verify):
    app.command()(command)
app.command()(prompt)
app.command()(answer)
app.command("eval")(evaluate)
app.command()(export)
app.command()(cost)
app.command("grade")(grade_submission)
app.command("graph")(draw_graph)


def main(arguments: list[str] | None = None) -> None:
    """The entry point of `ksearch`; expected errors become one message and an exit code (as SystemExit).

    What .env in the current folder sets counts where the environment says nothing.
    """
    load_dotenv(Path.cwd() / ".env")
    try:
        app(arguments)
    except DiskFull as error:
        sys.exit(complain(str(error), PARKED))
    except (TaskError, ModelError, PromptError, ArchiveError, ToolMissing, typer.BadParameter) as error:
        sys.exit(complain(str(error), USAGE))
    except (RunBusy, EvaluatorUnavailable) as error:
        sys.exit(complain(str(error), FAILED))
    except ModelUnavailable as error:
        sys.exit(complain(f"{error}\nNothing is lost; go on with: ksearch resume RUN (see ksearch runs)", PARKED))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        sys.exit(complain(f"{place}: {first['msg']} (it was {first['input']!r})", USAGE))


if __name__ == "__main__":
    main()
