"""Builds are made once for each program, also side by side."""

from pathlib import Path

import pytest

from tasks.building import Builder, Source, Target
from tasks.compiler import Entry
from tasks.tool import Build


def test_a_program_asked_for_twice_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder(Target(Entry("f", "def f(x): ..."), 5.0), tmp_path)
    compiled = []

    def compile_slowly(source: Source, folder: Path) -> Build:
        compiled.append(source.id)
        path = folder / "kernel.py"
        path.write_text(source.text)
        return Build(str(path), "python", 0.0)

    monkeypatch.setattr(builder, "_compile", compile_slowly)
    texts = [f"def f(x): return {number}" for number in range(3)]
    sources = [Source(f"{text}{copy}", "python", text) for text in texts for copy in "ab"]
    builder.build_all(sources)
    assert len(compiled) == 3
    for source in sources:
        built = builder.build(source)
        assert isinstance(built, Build)
        assert Path(built.path).read_text() == source.text
    assert len(compiled) == 3
