"""Services for real runs: the archive's file, the evaluator, models by name."""

from __future__ import annotations

from pathlib import Path

from graph.checkpointer import database_path
from nodes.models.named import Options, model_named
from nodes.services import Services
from prompts.rendering import SHIPPED, Templates
from state.archive import Archive
from state.lease import Leases
from state.settings import Settings
from tasks.evaluator import Evaluator
from tasks.local import LocalEvaluator
from tasks.spool import Site, SpoolEvaluator
from tasks.task import DEVICE, Task, find_task


def evaluator_for(task: Task, settings: Settings) -> Evaluator:
    """The evaluator that these settings ask for, nothing started yet."""
    device = DEVICE[task.languages[0]] or settings.device
    if settings.spool is not None:
        return SpoolEvaluator(
            task, Site(Path(settings.spool), settings.hardware, device, settings.march, settings.threads)
        )
    return LocalEvaluator(task, device=device, march=settings.march, threads=settings.threads)


def options_of(settings: Settings) -> Options:
    """How these settings want models to be called."""
    return Options(settings.base_url, settings.temperature, settings.reasoning_effort, settings.max_output_tokens,
                   settings.call_timeout_s)  # fmt: skip


def templates_of(settings: Settings) -> Templates:
    """The templates that these settings ask for. Raises PromptError."""
    return SHIPPED if settings.prompts is None else Templates(Path(settings.prompts))


class LiveServices:
    """A factory that builds a run's services once and remembers them."""

    def __init__(self, database: Path | None = None, leases: Leases | None = None) -> None:
        self._database = database
        self._leases = leases
        self._made: dict[str, Services] = {}

    def __call__(self, run: str, settings: Settings) -> Services:
        """The run's services. Raises TaskError, ModelError or ArchiveError with what to do about it."""
        made = self._made.get(run)
        if made is None or made.settings != settings:
            made = self._make(run, settings)
            self._forget_done(made.archive)
            self._made[run] = made
        return made

    def _forget_done(self, archive: Archive) -> None:
        """A server that lives for days keeps no process of a run that is done."""
        for row in archive.runs():
            services = self._made.pop(row["run"], None) if row["status"] == "done" else None
            if services is not None:
                _close(services)

    def _make(self, run: str, settings: Settings) -> Services:
        path = (self._database or database_path()).resolve()
        task = find_task(settings.task).narrowed(settings.language, settings.device)
        options = options_of(settings)
        world_model = model_named(settings.world_model_name, task, options)
        coder = model_named(settings.coder_name, task, options)
        later = None if settings.switch_to is None else model_named(settings.switch_to, task, options)
        archive = Archive(path)
        evaluator = evaluator_for(task, settings)
        self._leases = self._leases or Leases(path)
        return Services(run=run, settings=settings, task=task, archive=archive, evaluator=evaluator,
                        world_model=world_model, coder=coder, later=later, lease=self._leases.of(run),
                        templates=templates_of(settings))  # fmt: skip

    def close(self) -> None:
        """Nothing that was started for any run is running any more."""
        for services in self._made.values():
            _close(services)
        self._made.clear()


def _close(services: Services) -> None:
    services.evaluator.close()
    services.archive.close()
