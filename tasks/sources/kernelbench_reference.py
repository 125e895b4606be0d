"""A KernelBench problem: its Model, and inputs that its get_inputs draws anew under every seed."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.nn.modules.dropout import _DropoutNd


def _imported() -> ModuleType:
    spec = importlib.util.spec_from_file_location("kernelbench_problem", Path(__file__).with_name("problem.py"))
    if spec is None or spec.loader is None:
        raise ImportError("problem.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_PROBLEM = _imported()


def make_init() -> list[Any]:
    """The arguments of Model and of the program's ModelNew."""
    return list(_PROBLEM.get_init_inputs())


def make_inputs(generator: torch.Generator) -> list[Any]:
    """What get_inputs returns, drawn on the generator's device."""
    seed = generator.initial_seed()
    torch.manual_seed(seed)
    random.seed(seed)
    with torch.device(generator.device):
        made = _PROBLEM.get_inputs()
    return [value.to(generator.device) if isinstance(value, torch.Tensor) else value for value in made]


def reference(*init: Any) -> torch.nn.Module:
    """Upstream's Model in training mode, as upstream calls it; but in eval mode where that would drop at random."""
    model: torch.nn.Module = _PROBLEM.Model(*init)
    return model.train(not any(isinstance(part, _DropoutNd) and part.p > 0 for part in model.modules()))


eager = reference


def compiled(*init: Any) -> Any:
    """The same through torch.compile."""
    return torch.compile(reference(*init), dynamic=False)
