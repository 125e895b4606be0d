"""Programs as people have them become one text each, and run under the task's own convention."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tiny_task import TOML, write_task

from tasks.joining import PACKAGE, joined_c, joined_python, roots
from tasks.submissions import read_programs
from tasks.task import Task, TaskError


@pytest.fixture(autouse=True)
def clean_imports() -> Iterator[None]:
    """What a joined program adds to the import system is gone afterwards."""
    finders, names = list(sys.meta_path), set(sys.modules)
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - names:
        if name.startswith((PACKAGE, "helper", "pack", "joined")):
            del sys.modules[name]


def loaded(text: str, folder: Path) -> ModuleType:
    file = folder / "joined_program.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location("joined_program", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return write_task(tmp_path / "task")


def folder_of(tmp_path: Path, **files: str) -> Path:
    folder = tmp_path / "programs"
    for name, text in files.items():
        path = folder / name.replace("__slash__", "/").replace("__dot__", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_headers_are_inlined_where_they_are_included_and_only_once() -> None:
    parts = {
        "kernel.cu": '#include <math.h>\n#include "inc/tile.h"\n  # include "inc/size.h"  // again\nint run;\n',
        "inc/tile.h": '#pragma once\n#include "size.h"\nint tile = SIZE;\n',
        "inc/size.h": "#pragma once\n#define SIZE 4\n",
    }
    text = joined_c(["kernel.cu"], parts)
    assert text.count("#define SIZE 4") == 1 and "pragma" not in text and '#include "' not in text
    assert text.index("SIZE 4") < text.index("int tile") < text.index("int run")
    assert "#include <math.h>" in text


def test_an_include_that_is_no_known_file_stays_as_it_is() -> None:
    assert '#include "cuda_fp16.h"' in joined_c(["a.cu"], {"a.cu": '#include "cuda_fp16.h"\n'})


@pytest.mark.parametrize(
    "style", ["from .helper import twice", "from helper import twice", "from . import helper\ntwice = helper.twice"]
)
def test_python_files_that_import_each_other_become_one_module(tmp_path: Path, style: str) -> None:
    parts = {
        "main.py": f"{style}\nfrom .pack.deep import three\ndef run(x):\n    return twice(x) + three()\n",
        "helper.py": "QUOTES = '''it's \\n'''\ndef twice(x):\n    return 2 * x\n",
        "pack/__init__.py": "",
        "pack/deep.py": "from ..helper import twice\ndef three():\n    return twice(1) + 1\n",
        "unused.py": "raise RuntimeError('is never imported')\n",
    }
    module = loaded(joined_python("main.py", "run", parts), tmp_path)
    assert module.run(5) == 13
    assert "never imported" not in joined_python("main.py", "run", parts)
    assert inspect.getsource(module.run).startswith("def run(x):")  # what triton.jit needs


def test_in_a_folder_the_files_that_others_need_are_no_programs(tmp_path: Path, task: Task) -> None:
    folder = folder_of(
        tmp_path,
        one__dot__cpp='#include "part.cpp"\n',
        two__dot__cpp="int two;\n",
        part__dot__cpp="int part;\n",
        notes__dot__txt="x",
    )
    found = dict(read_programs(folder, task))
    assert list(found) == ["one.cpp", "two.cpp"]
    assert "int part;" in found["one.cpp"].source and found["two.cpp"].source == "int two;\n"


def test_a_file_takes_along_what_lies_beside_it(tmp_path: Path, task: Task) -> None:
    folder = folder_of(tmp_path, one__dot__cpp='#include "sub/part.h"\n', sub__slash__part__dot__h="int part;\n")
    [(name, program)] = read_programs(folder / "one.cpp", task)
    assert name == "one.cpp" and program.language == "cpp" and "int part;" in program.source


def test_a_single_file_is_taken_byte_for_byte(tmp_path: Path, task: Task) -> None:
    text = "#pragma once\n// only one file\n#include <cmath>\n"
    folder = folder_of(tmp_path, one__dot__cpp=text)
    [(_, program)] = read_programs(folder / "one.cpp", task)
    assert program.source == text


def test_files_that_include_each_other_in_a_circle_end(tmp_path: Path) -> None:
    parts = {"a.h": '#include "b.h"\nint a;', "b.h": '#include "a.h"\nint b;', "k.cu": '#include "a.h"\n'}
    assert roots(parts) == ["k.cu"]
    text = joined_c(["k.cu"], parts)
    assert text.count("int a;") == 1 and text.count("int b;") == 1


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("missing.cpp", None, "cannot be read"),
        ("other.py", "x = 1\n", "takes cpp programs"),
        ("other.rs", "fn main() {}\n", "takes cpp"),
    ],
)
def test_what_cannot_be_a_program_is_refused(
    tmp_path: Path, task: Task, name: str, text: str | None, reason: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(TaskError, match=f"{name}.*{reason}"):
        read_programs(tmp_path / name, task)


def test_a_folder_without_programs_is_refused(tmp_path: Path, task: Task) -> None:
    with pytest.raises(TaskError, match="holds no program"):
        read_programs(folder_of(tmp_path, readme__dot__md="none"), task)


def test_a_submission_may_import_the_modules_that_its_task_brings(tmp_path: Path) -> None:
    (tmp_path / "task" / "upstream").mkdir(parents=True)
    (tmp_path / "task" / "upstream" / "task.py").write_text("kind = int\n")
    task = write_task(tmp_path / "task", toml='files = ["upstream/task.py"]\n' + TOML.replace('["cpp"]', '["python"]'))
    folder = folder_of(tmp_path, sub__dot__py="from task import kind\n\ndef rowscale(data):\n    return kind(data)\n")
    [(_, program)] = read_programs(folder / "sub.py", task)
    assert loaded(program.source, tmp_path).rowscale("3") == 3
    assert read_programs(folder, task) == [("sub.py", program)]
