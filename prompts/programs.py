"""The program in a coder's reply, in any of the shapes that models send, or the reason that there is none."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from prompts.replies import Block, answered, aside, code_lines, is_patch, patched, plain, set_apart
from state.program import Language, Program, imports_triton
from tasks.joining import closure, joined_c, joined_python, used
from tasks.task import Task

LIMIT = 1_000_000
"""Bytes that a reply, and a program, may have."""
_FILES, _FENCES = 64, 5000
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_C_PARTS = (
    r"(?P<note>//[^\n]*|/\*.*?\*/)|(?P<text>(?:\b(?:u8|[uUL])?|(?<=\b[uUL])|(?<=\bu8))R\"(?P<end>[^()\\\s]{0,16})\("
    r".*?\)(?P=end)\"|(?<!R)\"(?:[^\"\\\n]++|\\.)*+(?:\"|\\?(?=\n|\Z))|(?<![0-9a-fA-F])'(?:[^'\\\n]++|\\.)*+(?:'|\\?"
    r"(?=\n|\Z)))|(?P<torn>/\*.*|R\"[^()\\\s]{0,16}\(.*)|(?P<directive>(?:^|\n)[ \t]*+\#(?:[^\n\\]++|\\.)*+)|(?P<token>"
)
_C_TOKEN = re.compile(_C_PARTS + r"[A-Za-z_]\w*+|[{}()\[\];<>=*&:,~])", re.DOTALL | re.MULTILINE)
_C_SKIP = r"(?:[^/\"'#{}\nR]++|\n(?![ \t]*+\#)|/(?![/*])|R(?!\"))*+"  # what counts for nothing in a function's body
_C_BRACE = re.compile(rf"{_C_SKIP}(?:{_C_PARTS}[{{}}])|(?P<other>.|\Z))", re.DOTALL | re.MULTILINE)
_DIRECTIVE = re.compile(r"\s*#\s*(if|el|end)\w*\s*(0\b)?")
_IN_MACRO = re.compile(r"\bvoid[ \t]++(\w+)[ \t]*\(")
_PY_TEXT = re.compile(
    r"(?P<note>#[^\n]*)|(?P<text>\"\"\"(?:[^\"\\]++|\\.|\"(?!\"\"))*+\"\"\"|'''(?:[^'\\]++|\\.|'(?!''))*+'''"
    r"|\"(?!\"\")(?:[^\"\\\n]++|\\.)*+(?:\"|(?=\n))|'(?!'')(?:[^'\\\n]++|\\.)*+(?:'|(?=\n)))|(?P<torn>[\"'].*)",
    re.DOTALL,
)
_MASKS = {"note": "", "text": '""', "torn": "("}
_PY_DEFINED = re.compile(r"(?:def|class)[ \t]+(\w+)")
_PY_ASSIGNED = re.compile(r"(\w+)[ \t]*(?::[^=]*)?=(?!=)[ \t]*")
_PY_OPEN = re.compile(r"(?:if|elif|else|try|except|finally|with|for|while)\b")
_PY_PENDING = re.compile(r"(?:^@.*|[:\\,=+\-/%&|^<>]|(?<!\.)\.)$")
_EXPORTED = r"TVM_FFI_DLL_EXPORT_TYPED_FUNC\(\s*{name}\s*,|\.def\(\s*\"{name}\""


@dataclass(frozen=True)
class Unusable:
    """A reply without a program, and why."""

    reason: str


@dataclass(frozen=True)
class _Asked:
    """What a program is looked for by."""

    entry: str
    language: Language
    base: str | None
    cut_off: bool
    python: bool
    known: dict[str, _Outline] = field(default_factory=dict)

    def defined_in(self, text: str) -> bool:
        """Whether a source text defines the entry point."""
        if self.entry not in text:
            return False
        if self.language == "cuda":
            code = _C_TOKEN.sub(lambda match: " " if match[0][:2] in ("//", "/*") else match[0], text)
            return re.search(_EXPORTED.format(name=self.entry), code) is not None
        return self.entry in self.outlined(text).names

    def whole(self, text: str) -> bool:
        """Whether what nothing closes is a whole source all the same."""
        return not self.cut_off and self.outlined(text).complete

    def outlined(self, text: str) -> _Outline:
        if text not in self.known:
            self.known[text] = _outlined_python(text) if self.python else _Reading(text).outline
        return self.known[text]


@dataclass(frozen=True)
class _Outline:
    """What a source text defines at its top level, and whether it ends where a source can end."""

    names: dict[str, None]
    complete: bool


class _Reading:
    """One reading of a C++ source: the functions that it defines outside of classes and of `#if 0`."""

    def __init__(self, text: str) -> None:
        self._names: dict[str, None] = {}
        self._statement: list[str] = []
        self._around = self._within = self._depth = 0
        """Open braces of namespaces, braces within the first of another kind, and parentheses."""
        self._dead = torn = False
        self._branches: list[tuple[int, int, int, int, bool]] = []
        found = _C_TOKEN.search(text)
        while found is not None:
            kind, end = found.lastgroup, found.end()
            if kind == "token":
                self._take(found["token"])
            elif kind == "directive":
                self._direct(found["directive"])
            torn = kind == "torn"
            self._statement += ['""'] if kind == "text" else []
            found = (_C_BRACE if self._within else _C_TOKEN).search(text, end) if end < len(text) else None
        opened = self._around + self._within + max(0, self._depth)
        ends = not self._statement or self._statement[-1] == ")"
        self.outline = _Outline(self._names, ends and not (torn or opened or self._branches))

    def _direct(self, line: str) -> None:
        found = _DIRECTIVE.match(line)
        self._names |= {} if self._dead else dict.fromkeys(_IN_MACRO.findall(line))
        if found and found[1] == "if":
            self._branches.append((self._around, self._within, self._depth, len(self._statement), self._dead))
            self._dead = self._dead or found[2] is not None
        elif found and found[1] == "end" and self._branches:
            self._dead = self._branches.pop()[-1]
        elif found and self._branches:
            self._around, self._within, self._depth, length, self._dead = self._branches[-1]
            del self._statement[length:]

    def _take(self, token: str) -> None:
        if token == "{" and not self._within and self._depth == 0 and self._begins():
            self._around += 1
        elif token == "{":
            self._within += 1
        elif token == "}":
            self._around -= not self._within and self._around > 0
            self._within -= self._within > 0
            self._statement = self._statement if self._depth else []
        elif not self._within and token == ";":
            self._statement, self._depth = [], 0
        elif not self._within:
            self._depth += (token == "(") - (token == ")")
            self._statement.append(token)

    def _begins(self) -> bool:
        """Notes the function whose body begins; whether the brace is that of a namespace or of extern "C"."""
        said, depth = self._statement, 0
        for at, token in enumerate(said):
            if token == "(" and depth == 0 and at > 1 and said[at - 1].isidentifier() and said[at - 1][:2] != "__":
                before = said[at - 2]
                if before.isidentifier() or before in (">", "*", "&", "]", ")"):
                    self._names |= {} if self._dead else {said[at - 1]: None}
            depth += (token in "([") - (token in ")]")
        self._statement = []
        return "namespace" in said or said[-2:] == ["extern", '""']


def _outlined_python(text: str) -> _Outline:
    """The functions, classes and assigned names of a Python source, also those under `if` and `try`."""
    names: dict[str, None] = {}
    scopes: list[tuple[int, bool]] = []
    depth, last = 0, ""
    for line in _PY_TEXT.sub(lambda match: _MASKS[match.lastgroup or ""], text).split("\n"):
        if not (code := line.strip()):
            continue
        if depth == 0:
            indent = len(line) - len(line.lstrip())
            while scopes and scopes[-1][0] >= indent:
                scopes.pop()
            outside = scopes[-1][1] if scopes else indent == 0
            names |= dict.fromkeys(_bound(code, names)) if outside else {}
            scopes.append((indent, outside and _PY_OPEN.match(code) is not None))
        depth = max(0, depth + sum(map(code.count, "([{")) - sum(map(code.count, ")]}")))
        last = code
    return _Outline(names, depth == 0 and _PY_PENDING.search(last) is None)


def _bound(code: str, known: dict[str, None]) -> list[str]:
    """The names that a statement defines; not one that it makes of itself and that nothing defined before."""
    found = _PY_DEFINED.match(code)
    names, end = [found[1]] if found else [], 0
    while (target := _PY_ASSIGNED.match(code, end)) is not None:
        names.append(target[1])
        end = target.end()
    used = set(re.findall(r"\w+", code[end:])) if end else ()
    return [name for name in names if name in known or name not in used]


def parse_program(
    reply: str, task: Task, language: Language, *, base: str | None = None, cut_off: bool = False
) -> Program | Unusable:
    """The program that a reply sends, the last where it sends several; a reason for the model where it sends none.

    A reply that is a diff is applied to `base`; `cut_off` says that the model stopped at its limit of tokens.
    Never raises; takes time linear in the reply.
    """
    if len(reply) > LIMIT:
        return Unusable(f"the reply is larger than {LIMIT} characters: send one program, without anything else")
    source = _found(reply, _Asked(task.entry_point, language, base, cut_off, language in ("python", "triton")))
    if isinstance(source, Unusable):
        return source
    if _NO_TEXT.search(source):
        return Unusable("the program holds NUL bytes or lone surrogates, which are no text: write them as escapes")
    source += "" if source.endswith("\n") else "\n"
    if len(source.encode()) > LIMIT:
        return Unusable(f"the program is larger than {LIMIT} bytes: send a shorter one")
    if language == "triton" and not imports_triton(source.replace("r'''", "\n")):
        return Unusable("the program does not import triton")
    return Program(language=language, source=source)


def _found(reply: str, asked: _Asked) -> str | Unusable:
    """The source text in a reply."""
    if not reply.strip():
        return Unusable("the reply is empty")
    if reply.count("```") + reply.count("~~~") > _FENCES:
        return Unusable(f"the reply has more than {_FENCES} fences: send one program, without anything else")
    said = answered(reply)
    blocks = set_apart(said.text, asked.entry)
    chosen = _chosen(blocks, asked) if blocks else _bare(said.text, asked)
    if isinstance(chosen, Unusable) and said.open:
        return Unusable("the thinking block is not closed: the reply was cut off before its program; think less")
    return chosen if said.text else Unusable("the reply is empty but for its thinking: send the program after it")


def _chosen(blocks: list[Block], asked: _Asked) -> str | Unusable:
    whole = [block for block in blocks if not is_patch(block)]
    fitting = [block for block in whole if asked.defined_in(block.text)]
    fitting = [block for block in fitting if not aside(block, python=asked.python)] or fitting
    complete = [block for block in fitting if block.closed or asked.whole(block.text)]
    if complete:
        return _with_files(complete, whole, asked)
    if fitting:
        return Unusable("the code block is not closed: the reply was cut off; send a shorter program, whole")
    if len(whole) < len(blocks):
        return _patched([block for block in blocks if is_patch(block)][-1], asked)
    if any(not (block.closed or asked.whole(block.text)) for block in blocks):
        return Unusable(f"the code block is not closed: the reply was cut off before the entry point {asked.entry}")
    if not any(block.text.strip() for block in blocks):
        return Unusable("the code block is empty: send the complete program in it")
    return _missing("no code block defines", [block.text for block in whole], asked)


def _missing(what: str, texts: list[str], asked: _Asked) -> Unusable:
    name = asked.entry
    forms: dict[Language, str] = {
        "cpp": f'extern "C" void {name}(...) with its body',
        "cuda": f'TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, ...) or m.def("{name}", ...)',
    }
    needed = forms.get(asked.language, f"def {name}(...) or class {name} at the top level")
    names = [other[:80] for text in texts[:20] for other in list(asked.outlined(text[:20_000]).names)[:6]]
    found = f"found: {', '.join(names[:6])}" if names else "no definition was found"
    return Unusable(f"{what} the entry point {name}: it needs {needed}; {found}")


def _patched(patch: Block, asked: _Asked) -> str | Unusable:
    if asked.base is None:
        return Unusable("the reply is a diff, and there is nothing to apply it to: send the complete program")
    if not patch.closed and asked.cut_off:
        return Unusable("the diff is not closed: the reply was cut off; send a shorter one")
    if (text := patched(patch.text, asked.base)) is None:
        return Unusable("the diff does not apply to the program to start from: send the complete program")
    return text if asked.defined_in(text) else _missing("what the diff makes does not define", [text], asked)


def _bare(text: str, asked: _Asked) -> str | Unusable:
    """The code of an answer without any block: what lies between its first and its last line of code."""
    bare = Block(plain(text) + "\n", closed=False)
    if is_patch(bare):
        return _patched(bare, asked)
    source = code_lines(bare.text, python=asked.python)
    if not asked.defined_in(source):
        return Unusable(f"the reply has no fenced code block and is no program: send all of {asked.entry} in one")
    if not asked.whole(source):
        return Unusable("the program does not end: the reply was cut off; send a shorter program, whole")
    return source


def _with_files(fitting: list[Block], blocks: list[Block], asked: _Asked) -> str | Unusable:
    """The last program that fits, joined with the other files that it needs."""
    last = fitting[-1]
    path = last.path or ("program.py" if asked.python else "program.cu")
    files = [block for block in blocks if block.path and block.closed and not aside(block, python=asked.python)]
    parts = {block.path: block.text for block in files} | {path: last.text}
    if len(parts) > _FILES:
        return Unusable(f"the reply has {len(parts)} files, more than {_FILES}: send one file")
    entries = {block.path: block.text for block in fitting if block.path in parts} if last.path else {path: last.text}
    try:
        return _joined(entries, parts | entries, asked)
    except (RecursionError, MemoryError):
        return Unusable("the files of the reply cannot be joined: they are nested too deeply; send one file")


def _joined(entries: dict[str, str], parts: dict[str, str], asked: _Asked) -> str | Unusable:
    """The file that defines the entry point with those that it needs, where no other that does stands beside it."""
    inner = {name for path in entries for name in used(path, parts)} if len(parts) > 1 else set()
    tops = [path for path in entries if path not in inner] or list(entries)
    if len(tops) > 1:
        return Unusable(f"{tops[-2]} and {tops[-1]} both define {asked.entry}, and cannot be joined: send one file")
    path = tops[-1]
    known = closure(path, parts) if len(parts) > 1 else [path]
    if not asked.python:
        others = {name for name in parts if name.endswith((".cu", ".cpp", ".cc", ".cxx"))} - {*known}
        others -= {name for name in others if path in used(name, parts) or asked.defined_in(parts[name])}
        others -= {name for name in others if "main" in asked.outlined(parts[name]).names}
        return joined_c([*sorted(others), path], parts) if others or len(known) > 1 else parts[path]
    if foreign := [name for name in parts if not name.endswith(".py") and name in parts[path]]:
        return Unusable(f"{path} reads the file {foreign[0]}, and the two cannot be joined: send one file")
    return joined_python(path, asked.entry, parts) if len(known) > 1 else parts[path]
