"""A GPU Mode problem as its task.yml describes it: a folder of a reference-kernels checkout, parsed once."""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictStr,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from tasks.errors import TaskError

SUBMISSION = "@SUBMISSION@"
"""Stands for the program in the file map."""
_SECONDS = 180
"""Upstream's limit where a task.yml gives none."""

Value = bool | int | float | str | list[int]


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _value(value: object) -> object:
    if value is None:
        raise ValueError("a test case needs a value here")
    if isinstance(value, list) and value and all(type(item) is int for item in value):
        return value
    if type(value) not in (bool, int, float, str):
        raise ValueError(f"{value!r} is neither a boolean, a number, a string nor a list of whole numbers")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("must be finite")
    return value


def _relative(name: str) -> str:
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts:
        raise ValueError("not the name of a file beside the others")
    return name


_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Case = Annotated[dict[_Name, Annotated[Any, BeforeValidator(_value)]], Field(min_length=1)]
"""Arguments of upstream's generate_input, by name."""
_Limit = Annotated[int, Field(gt=0, strict=True)]


class Source(_Data):
    """One entry of the file map."""

    name: Annotated[StrictStr, BeforeValidator(lambda name: _relative(name) if isinstance(name, str) else name)]
    source: StrictStr
    """Path from the problem's folder, or SUBMISSION."""


class Config(_Data):
    """What is run."""

    main: StrictStr


class Validation(_Data):
    """A further check of upstream's service; it has no part in a grade."""

    version: StrictStr
    script: StrictStr


class Manifest(_Data):
    """The keys of a task.yml."""

    files: tuple[Source, ...] = Field(min_length=1)
    lang: Literal["py"]
    config: Config
    tests: tuple[Case, ...] = Field(min_length=1)
    benchmarks: tuple[Case, ...] = Field(min_length=1)
    description: StrictStr = ""
    templates: dict[str, StrictStr] | None = None
    test_timeout: _Limit = _SECONDS
    benchmark_timeout: _Limit = _SECONDS
    ranked_timeout: _Limit = _SECONDS
    ranking_by: Literal["last", "mean", "geom"] = "last"
    multi_gpu: StrictBool = False
    gpus: tuple[StrictStr, ...] = ()
    libraries: tuple[StrictStr, ...] = ()
    seed: int | None = None
    validation: Validation | None = None

    @model_validator(mode="after")
    def _runnable(self) -> Self:
        names = [entry.name for entry in self.files]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"files: two are named {name!r}")
        if [entry.source for entry in self.files].count(SUBMISSION) != 1:
            raise ValueError(f"files: exactly one must have the source {SUBMISSION}")
        if self.config.main not in names:
            raise ValueError(f"config.main: {self.config.main!r} is not among the files")
        return self


class Problem(_Data):
    """A problem with the texts of its files."""

    file: Path
    """Its task.yml."""
    manifest: Manifest
    texts: dict[str, str]
    """The file map without the submission: name to text."""

    @property
    def name(self) -> str:
        """Its folder and the folder above, for instance pmpp_v2/vectoradd_py."""
        return "/".join(self.file.parent.parts[-2:])

    @property
    def submission(self) -> str:
        """Name of the file that the program becomes."""
        return next(entry.name for entry in self.manifest.files if entry.source == SUBMISSION)


def case_file(cases: tuple[dict[str, Value], ...]) -> str:
    """Upstream's text for cases, a line each. Its harness reads booleans back as strings, so that "False" is true."""
    return "".join("; ".join(f"{name}: {value}" for name, value in case.items()) + "\n" for case in cases)


def read_problem(path: Path) -> Problem:
    """The problem of a folder or of a task.yml; TaskError names the file and the key, also where one is refused."""
    file = (path / "task.yml" if path.is_dir() else path).resolve()
    data = _yaml(file)
    if data.get("lang") == "cu":
        raise TaskError(f"{file}: lang: problems whose harness is written in CUDA are not supported, only py")
    try:
        manifest = Manifest.model_validate(data)
    except ValidationError as error:
        lines = [": ".join(filter(None, (str(file), *_said(item)))) for item in error.errors()]
        raise TaskError("\n".join(lines)) from None
    if manifest.multi_gpu:
        raise TaskError(f"{file}: multi_gpu: problems for several GPUs are not supported: programs are given one")
    texts = {
        entry.name: _text(file, f"files.{index}.source", entry.source)
        for index, entry in enumerate(manifest.files)
        if entry.source != SUBMISSION
    }
    for language, source in (manifest.templates or {}).items():
        _text(file, f"templates.{language}", source)
    return Problem(file=file, manifest=manifest, texts=texts)


def _said(error: ErrorDetails) -> tuple[str, str]:
    """The key, empty where the message itself begins with it, and the message."""
    return ".".join(map(str, error["loc"])), error["msg"].removeprefix("Value error, ")


def _yaml(file: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise TaskError(f"{file}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TaskError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict):
        raise TaskError(f"{file}: task: must be a mapping of keys to values")
    return data


def _text(file: Path, key: str, source: str) -> str:
    try:
        return (file.parent / source).read_text(encoding="utf-8")
    except OSError as error:
        raise TaskError(f"{file}: {key}: {source} cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise TaskError(f"{file}: {key}: {source} is not UTF-8 text") from None
