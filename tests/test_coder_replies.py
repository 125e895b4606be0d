"""The program in a coder's reply: where it is found, and why a reply has none."""

from __future__ import annotations

import pytest
from fakes import SCAFFOLD

from prompts.coder import Unusable, parse_program
from state.program import Language, Program
from tasks.task import load_task

TASK = load_task(SCAFFOLD)
CODE = 'extern "C" void my_kernel(const float *x) {}\n'
DRAFTED = 'extern "C" void my_kernel(const float *x) { /* draft */ }\n'


@pytest.mark.parametrize(
    "reply",
    [
        f"```cpp\n{CODE}```", f"```c++\n{CODE}```", f"```\n{CODE}```", f"~~~cpp\n{CODE}~~~", f"````cpp\n{CODE}````",
        f"Here:\n\n```cpp\n{CODE}```\nIt uses SIMD.", f"```cpp\n{CODE}```\n".replace("\n", "\r\n"),
        f"<think>```cpp\n{DRAFTED}```</think>\n```cpp\n{CODE}```", f"```cpp\n{DRAFTED}```\nBetter:\n```cpp\n{CODE}```",
        f"```cpp\n{CODE}```\nBuild it:\n```sh\ng++ -O3 a.cpp\n```",
        f"```cpp\n{CODE}```\nCall it:\n```cpp\nmy_kernel(x);\n```",
    ],
    ids=["cpp", "c++", "plain", "tildes", "four ticks", "prose", "CRLF", "draft in thinking", "draft and final",
         "shell after it", "a call after it"],
)  # fmt: skip
def test_the_program_is_found_in(reply: str) -> None:
    assert parse_program(reply, TASK, "cpp") == Program(language="cpp", source=CODE)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "the reply is empty"),
        (f"<think>```cpp\n{CODE}```", "the reply is empty"),
        ("Use SIMD.", "no fenced code block"),
        (CODE, "no fenced code block"),
        (f"```cpp\n{CODE}", "cut off"),
        ("```cpp\nint main() {}\n```", "no code block defines the entry point my_kernel"),
        ("```cpp\nvoid my_kernel_2() {}\n```", "no code block defines the entry point my_kernel"),
    ],
)
def test_a_reply_without_a_program_says_why(reply: str, reason: str) -> None:
    parsed = parse_program(reply, TASK, "cpp")
    assert isinstance(parsed, Unusable)
    assert reason in parsed.reason


EXPORTED = "TVM_FFI_DLL_EXPORT_TYPED_FUNC(my_kernel, run);\n"
BOUND = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n  m.def("my_kernel", &run);\n}\n'
DEFINED = "import torch\n\n\ndef my_kernel(x, y, out, rows, columns):\n    pass\n"


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("cuda", EXPORTED), ("cuda", EXPORTED.replace("(my", "(\n    my")), ("cuda", BOUND), ("python", DEFINED),
        ("triton", "import triton\n" + DEFINED),
    ],
)  # fmt: skip
def test_the_entry_point_has_the_form_of_its_language(language: Language, code: str) -> None:
    assert parse_program(f"```\n{code}```", TASK, language) == Program(language=language, source=code)


@pytest.mark.parametrize(
    ("language", "code", "reason"),
    [
        ("cuda", CODE, "no code block defines the entry point my_kernel"),
        ("cuda", EXPORTED.replace("my_kernel", "my_kernel_2"), "no code block defines"),
        ("python", CODE, "no code block defines"),
        ("python", DEFINED.replace("def", "class A:\n    def"), "no code block defines"),
        ("triton", DEFINED, "the program does not import triton"),
        ("cpp", EXPORTED, "no code block defines"),
    ],
)
def test_the_form_of_another_language_is_unusable(language: Language, code: str, reason: str) -> None:
    parsed = parse_program(f"```\n{code}```", TASK, language)
    assert isinstance(parsed, Unusable)
    assert reason in parsed.reason
