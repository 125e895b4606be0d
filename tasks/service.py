"""The requests that a trusted process answers: load a task, race its baselines, build and evaluate programs.

Standard library and torch only; a request and its reply are plain JSON, so that they may travel as files.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tasks import lock
from tasks.building import Builder, Source, Target
from tasks.called import open_problem
from tasks.channel import Message
from tasks.compiler import Entry
from tasks.device import Cuda, Device, first_line, open_device
from tasks.driver import DeviceSick, DriverError
from tasks.known import Known
from tasks.launcher import Launcher
from tasks.measure import Plan, measure
from tasks.problem import Problem, ProblemError
from tasks.race import race
from tasks.tool import Build, ToolMissing

_TIMING_VARIABLES = ("OMP_", "GOMP_", "KMP_", "GLIBC_TUNABLES", "ONEDNN_", "DNNL_", "ATEN_", "MKL_", "TORCHINDUCTOR_",
                     "CUDA_", "TRITON_")  # fmt: skip


class Service:
    """One task on one device. Every answer to what cannot be done now is {"unavailable": why}.

    With "worn_out" it is the device that failed, perhaps under the request.
    """

    def __init__(self) -> None:
        self._device: Device | None = None
        self._problem: Problem | None = None
        self._builder: Builder | None = None
        self._launcher: Launcher | None = None
        self._known = Known()

    def answer(self, request: Message) -> Message:
        """The reply; a fault of the task's own files comes back as task_error, a missing compiler as tool_missing."""
        actions: dict[str, Callable[[Message], Message]] = {
            "load": self._load, "race": self._race, "build": self._build, "evaluate": self._evaluate,
        }  # fmt: skip
        try:
            return actions[request["do"]](request)
        except ProblemError as error:
            return {"task_error": str(error)}
        except ToolMissing as error:
            return {"tool_missing": str(error)}
        except lock.LockTimeout as error:
            return {"unavailable": str(error)}
        except DeviceSick as error:
            return {"unavailable": str(error), "worn_out": True}
        except (DriverError, torch.AcceleratorError, torch.OutOfMemoryError) as error:
            return {"unavailable": f"the device failed under the harness: {first_line(error)}", "worn_out": True}

    def _load(self, request: Message) -> Message:
        task = request["task"]
        self._device = open_device(request["device"])
        self._problem = open_problem(task, self._device)
        capability = self._device.capability if isinstance(self._device, Cuda) else ""
        entry = Entry(task["entry_point"], task["prototype"])
        folder = Path(request["folder"])
        target = Target(entry, task["compile_s"], request["march"], capability)
        self._builder = Builder(target, folder / "builds")
        self._launcher = Launcher(request["language"] != "cpp", folder)
        version, flags, isa = self._builder.describe(request["language"])
        facts = self._device.facts()
        return {
            "versions": {"compiler": version, "system": platform.platform(), **facts} if version else
                        {"system": platform.platform(), **facts},
            "compiler_flags": list(flags),
            "isa": isa,
            "hardware": facts.get("device", ""),
            "environment": {key: value for key, value in os.environ.items() if key.startswith(_TIMING_VARIABLES)},
        }  # fmt: skip

    def _race(self, request: Message) -> Message:
        problem, _, _ = self._loaded()
        with lock.timing(), torch.no_grad():
            timings = [race(problem, problem.loads[name]) for name in request["workloads"]]
        self._known.warmed |= {(timing["workload"], timing["strongest"]) for timing in timings}
        return {"timings": timings}

    def _build(self, request: Message) -> Message:
        _, builder, _ = self._loaded()
        builder.build_all([Source(**program) for program in request["programs"]])
        return {}

    def _evaluate(self, request: Message) -> Message:
        problem, builder, launcher = self._loaded()
        began = time.monotonic()
        built = builder.build(Source(**request["program"]))
        if not isinstance(built, Build):
            return {"verdict": built.verdict, "compile_s": built.seconds, "evaluate_s": 0.0, "raced": []}
        launcher.prepare()
        with lock.timing():
            began = time.monotonic()
            reply = self._measured(problem, Plan(**request["plan"]), built)
        seconds = time.monotonic() - began - reply.pop("race_s")
        return {**reply, "compile_s": built.seconds, "evaluate_s": seconds, "notes": built.notes}

    def _measured(self, problem: Problem, plan: Plan, built: Build) -> Message:
        _, _, launcher = self._loaded()
        reply = measure(problem, plan, built, launcher, self._known)
        if reply["verdict"]["kind"] != "passed":
            problem.device.check_health()
        return reply

    def _loaded(self) -> tuple[Problem, Builder, Launcher]:
        if self._problem is None or self._builder is None or self._launcher is None:
            raise RuntimeError("no task was loaded")
        return self._problem, self._builder, self._launcher
