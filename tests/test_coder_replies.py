"""The program in a coder's reply: where it is found, and why a reply has none.

Each file of replies/ is a reply below a line `---`, and above it what comes of it and why.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fakes import SCAFFOLD
from hypothesis import given, settings
from hypothesis import strategies as st

from prompts.programs import LIMIT, Unusable, parse_program
from state.program import Language, Program
from tasks.task import load_task

TASK = load_task(SCAFFOLD)
REPLIES = Path(__file__).parent / "replies"
FILES = sorted(REPLIES.glob("*.txt"))
LANGUAGES: tuple[Language, ...] = ("cpp", "python", "triton", "cuda")
CODE = 'extern "C" void my_kernel(const float *x) {}\n'
BASE = """#include <cstdint>

extern "C" void my_kernel(const float *x, float *out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[i];  // draft
}
"""


def read(file: Path) -> tuple[dict[str, str], str]:
    """The header and the body of a file of replies/."""
    head, body = file.read_bytes().decode().split("---\n", 1)
    return dict(line.split(": ", 1) for line in head.splitlines()), body


def parsed(head: dict[str, str], body: str) -> Program | Unusable:
    language = next(language for language in LANGUAGES if language == head["language"])
    return parse_program(body, TASK, language, base=BASE if "base" in head else None, cut_off="cut_off" in head)


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_reply_of_the_corpus_comes_to_what_it_says(file: Path) -> None:
    head, body = read(file)
    found = parsed(head, body)
    if head["expect"] == "unusable":
        assert isinstance(found, Unusable), found.source
        assert head["reason"] in found.reason
        return
    assert isinstance(found, Program), found.reason
    assert found.language == head["language"]
    assert head["holds"].replace("\\n", "\n") in found.source
    assert head["lacks"].replace("\\r", "\r").replace("\\t", "\t") not in found.source
    assert (
        not [line for line in found.source.splitlines() if line.startswith(("```", "~~~"))]
        or "backticks" in head["why"]
    )


def test_a_program_is_what_stands_between_its_fences() -> None:
    assert parse_program(f"Here:\n```cpp\n{CODE}```\nDone.", TASK, "cpp") == Program(language="cpp", source=CODE)


def test_a_diff_that_fits_in_two_places_is_refused_unless_it_says_where() -> None:
    base = CODE + "// a\n// b\n// a\n// b\n"
    for line, expected in ((2, CODE + "// c\n// a\n// b\n"), (4, CODE + "// a\n// b\n// c\n"), (9, None)):
        found = parse_program(f"```diff\n@@ -{line},2 +{line},1 @@\n-// a\n-// b\n+// c\n```", TASK, "cpp", base=base)
        assert found.source == expected if isinstance(found, Program) else expected is None


def test_characters_that_are_no_text_are_refused_in_a_program_only() -> None:
    assert isinstance(parse_program(f"\ud83d\0\n```cpp\n{CODE}```", TASK, "cpp"), Program)
    for odd in ("\ud83d", "\udc00", "\0"):
        found = parse_program(f"```cpp\n{CODE}// {odd}\n```", TASK, "cpp")
        assert isinstance(found, Unusable) and "no text" in found.reason


def test_what_is_too_large_is_refused() -> None:
    for much in ("x" * LIMIT, "\N{GREEK SMALL LETTER ALPHA}" * (LIMIT - 100)):
        found = parse_program(f"```cpp\n{CODE}//{much[: LIMIT - 90]}\n```", TASK, "cpp")
        assert isinstance(found, Program) == (len(f"{CODE}//{much[: LIMIT - 90]}\n".encode()) <= LIMIT)
    found = parse_program("x" * (LIMIT + 1), TASK, "cpp")
    assert isinstance(found, Unusable) and "larger than" in found.reason


HUGE = (
    "`", "```\n", "```cpp\n", "````\n```\n", "~~~\n", "```a.cu\nvoid my_kernel(){}\n```\n", "word ```cpp\n",
    "<think>", "<think></think>", "</think>\n", '<file name="a.cu">', "<code><answer>", '{"code": ', '{"files": [',
    "{", "(", "[", '"', '\\"', "\\'", "'", '"""', "/*", 'R"a(', " ", "\n", "\\\n", "#if\n", "if x:\n ", "&lt;",
    "@@ -1 +1 @@\n-a\n+b\n", "my_kernel ", "my_kernel=", "void my_kernel(", "void my_kernel(){}\n",
    "def my_kernel(): pass\n",
)  # fmt: skip


@pytest.mark.parametrize("unit", HUGE)
def test_a_huge_reply_of_one_thing_returns(unit: str) -> None:
    for language, before in (("cpp", ""), ("python", "my_kernel\n"), ("cpp", f"```\n{CODE}"), ("cuda", "<think>")):
        found = parse_program(before + unit * (200_000 // len(unit)), TASK, language, base="a\n" * 1000)
        assert found.source if isinstance(found, Program) else found.reason


ODD = (
    "```", "````", "~~~", "```cpp\n", "```python\n", "```json\n", "```diff\n", "<think>", "</think>", "<code>", "]]>",
    "<file name='a.h'>", "</file>", "{", "}", "(", ")", '"', "'", '"""', "/*", "*/", "//", "#", "\\", "\n", "\r",
    "\r\n", "\0", "\t", "\ud83d", "\udc00", "\u2028", "\u200b", "\ufeff", "\x85", "\x0c", "é", "𝔘", "&lt;", "&amp;",
    "#if 0\n", "#endif\n", "@@ -1,2 +1,2 @@\n", "--- a/x\n+++ b/x\n", "my_kernel", "void my_kernel(",
    "def my_kernel(", '{"code": "',
)  # fmt: skip


def mutated(body: str, other: str, chance: random.Random) -> str:
    """The body after one to four cuts, copies, swaps and insertions."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randint(0, len(body))
        end = min(len(body), start + chance.choice((1, 10, 100, len(body))))
        body = chance.choice((
            body[:start],
            body[:start] + body[end:],
            body[:end] + body[start:],
            body[end:] + body[start:end] + body[:start],
            body[:start] + chance.choice(ODD) * chance.randint(1, 3) + body[start:],
            body[:start] + other[: chance.randint(0, len(other))] + body[end:],
        ))  # fmt: skip
    return body


def test_ten_thousand_mutated_replies_are_programs_or_say_why() -> None:
    chance = random.Random(20)
    corpus = [read(file) for file in FILES]
    kinds = {Program: 0, Unusable: 0}
    for _ in range(10_000):
        head, body = chance.choice(corpus)
        reply = mutated(body, chance.choice(corpus)[1], chance)
        head = head | {"language": chance.choice((head["language"], head["language"], *LANGUAGES))}
        head |= {word: "yes" for word in ("base", "cut_off") if chance.random() < 0.2}
        found = parsed(head, reply)
        kinds[type(found)] += 1
        if isinstance(found, Program):
            assert "my_kernel" in found.source and found.id
        else:
            assert found.reason.strip() and found.reason.isprintable(), reply
            found.reason.encode()
    assert min(kinds.values()) > 1000


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from((*ODD, CODE)) | st.text(max_size=8), max_size=25).map("".join)
    | st.text(st.characters(exclude_categories=())),
    st.sampled_from(LANGUAGES), st.none() | st.just(BASE) | st.text(), st.booleans(),
)  # fmt: skip
def test_any_text_is_a_program_or_says_why(reply: str, language: Language, base: str | None, cut_off: bool) -> None:
    found = parse_program(reply, TASK, language, base=base, cut_off=cut_off)
    assert found.source if isinstance(found, Program) else found.reason


def test_a_reply_parsed_again_gives_the_same() -> None:
    for file in FILES:
        head, body = read(file)
        assert parsed(head, body) == parsed(head, body)
