"""What models wrap their answers in: thinking, fences, tags, JSON, line ends. All in time linear in the reply."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

_FENCE = re.compile(r"([ \t]*)(`{3,}|~{3,})(.*)")
_INLINE_FENCE = re.compile(r"([^`\n]{1,200})(`{3,})(c\+\+|cpp|cuda|cu|python|py|triton)[ \t]*", re.IGNORECASE)
_TAG = re.compile(r"(?:(?<!`)|(?<=``)|(?=<[^`>\n]{1,120}>(?!`)))<(/?)(?:think|thinking|thought|reasoning)"
                  r"(?:[ \t][^<>\n]{0,100})?>", re.IGNORECASE)  # fmt: skip
_PATH = r"(?:[\w+-]+/){0,8}[\w+-]+(?:\.[\w+-]+)?\.(?:cuh?|cpp|cc|cxx|c|hpp|hh|h|py)"
_NAMED = re.compile(rf"(?:^|(?<=[\s:=\"'`{{]))({_PATH})(?=$|[\s\"'`,}}])")
_HEADING = re.compile(
    rf"(?:\d{{1,3}}[.)]\s{{0,3}})?[*`]{{0,3}}(?:file(?:\s?name)?\s?\d{{0,3}}[:=]?[*]{{0,2}}\s?)?[*`\"]{{0,3}}({_PATH})"
    r"[*`\":\s]{0,4}(?:\([^()]*\))?",
    re.IGNORECASE,
)
_COMMENT = re.compile(rf"\s*(?://+|#+|/\*+)\s*(?:file(?:\s?name)?\s*[:=]?\s*)?[`\"]?({_PATH})[`\"]?\s*(?:\*/)?\s*",
                      re.IGNORECASE)  # fmt: skip
_WHOLE_PATH = re.compile(rf"(?:\./)?({_PATH})")
_OPEN_FILE = re.compile(r"<file[ \t]+(?:name|path|filename)[ \t]*=[ \t]*[\"']?([^\"'<>\n]{1,200})[\"']?[^<>\n]{0,200}>",
                        re.IGNORECASE)  # fmt: skip
_OPEN_CODE = re.compile(r"<(code|answer|solution|program|source)(?:[ \t][^<>\n]{0,200})?>", re.IGNORECASE)
_ESCAPED = re.compile(r"&(lt|gt|quot|apos|amp|#39|#34|#x27);")
_ENTITIES = {"lt": "<", "gt": ">", "quot": '"', "#34": '"', "apos": "'", "#39": "'", "#x27": "'", "amp": "&"}
_C_LINE = re.compile(
    r"[ \t]*(?:#[ \t]*(?:include|define|if|el|end|pragma|undef|error)|//|/\*|(?:extern|template|static|using|namespace"
    r"|typedef|struct|inline|void|const|constexpr)\b|__\w|TVM_FFI|PYBIND11|[\])}]|.*[;{}][ \t]*$)"
)
_PY_LINE = re.compile(
    r"import \w|from [\w.]+ import\b|(?:def|class) \w|[@#)\]}]|[ \t]+\S|\"\"\"|'''|(?:try|else):|(?:if|with|for)\b.*:$"
    r"|[\w.]+(?:: *[\w.\[\], ]+)? *=|[\w.]+\("
)
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,\d{1,9})? \+\d{1,9}(?:,\d{1,9})? @@")
_HUNKS = 200
_TAGS = 1000
_ASIDE = frozenset(("sh", "bash", "shell", "console", "zsh", "json", "yaml", "toml", "cmake", "makefile", "make"))
_PYTHON = frozenset(("python", "py", "python3", "triton"))
_JSON = re.compile(r'\{\s{0,99}"(?:files|code|source|program|language|name|explanation|reasoning)"\s{0,99}:')


@dataclass(frozen=True)
class Block:
    """A piece of a reply that was set apart: by a fence, a tag or JSON."""

    text: str
    closed: bool
    """False when the reply ended before the block did."""
    label: str = ""
    """What follows the opening fence."""
    path: str = ""
    """The file that it is said to be; empty: none is named."""


@dataclass(frozen=True)
class Answer:
    """What is left of a reply without its thinking."""

    text: str
    thought: bool = False
    """There was thinking."""
    open: bool = False
    """The reply ended while it was thinking."""


def answer(reply: str) -> str:
    """The reply without thinking blocks, with plain line ends."""
    return answered(reply).text


def answered(reply: str) -> Answer:
    """The reply without thinking, with plain line ends; what a closing tag without an opening one ends is thinking.

    Tags within fenced blocks are text, but for a closing one that has a line to itself.
    """
    kept: list[str] = []
    before: list[str] = []
    fence: re.Match[str] | None = None
    thinking = thought = False
    for line in reply.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"):
        if fence is not None:
            tag = _TAG.fullmatch(line.strip()) if "</" in line else None
            if tag is None or not tag[1]:
                kept.append(line)
                fence = None if _closes(line, fence) else fence
                continue
        visible, at = [], 0
        for tag in _TAG.finditer(line) if "<" in line else ():
            thought = True
            if not thinking:
                visible.append(line[at : tag.start()])
            if tag[1] and not thinking:
                before, kept, visible, fence = [*kept, *visible], [], [], None
            thinking, at = not tag[1], tag.end()
        if not thinking:
            visible.append(line[at:])
            fence = _opens(visible[-1])
        kept.append("".join(visible))
    text = "\n".join(kept).strip()
    if not text and before and not thinking:
        text = "\n".join(before).strip()
    return Answer(text, thought, thinking)


def fenced(text: str) -> list[Block]:
    """The fenced blocks of an answer, in order; a labelled fence within an open block begins the next one."""
    blocks: list[Block] = []
    fence: re.Match[str] | None = None
    lines: list[str] = []
    heading = above = ""
    for line in text.replace("\r\n", "\n").split("\n"):
        if fence is None:
            fence, lines, above = _opens(line), [], heading
            heading = line if line.strip() else heading
        elif _closes(line, fence):
            blocks.append(_block(fence, lines, above, closed=True))
            fence, heading = None, ""
        elif _restarts(line, fence):
            blocks.append(_block(fence, lines, above, closed=False))
            fence, lines, above = _opens(line), [], ""
        else:
            lines.append(line)
    if fence is not None:
        blocks.append(_last(_block(fence, lines, above, closed=False), fence[2]))
    return blocks


def _opens(line: str) -> re.Match[str] | None:
    start = line.lstrip(" \t")[:3]
    if start in ("```", "~~~"):
        found = _FENCE.match(line)
        return None if found is None or (start == "```" and "`" in found[3]) else found
    return _INLINE_FENCE.fullmatch(line) if "```" in line and len(line) < 300 else None


def _indent(fence: re.Match[str]) -> int:
    return 0 if fence[1].strip() else len(fence[1])


def _closes(line: str, fence: re.Match[str]) -> bool:
    """Whether a line ends the block: a run at least as long, on its own, not indented as text within is."""
    if fence[2] not in line or line.strip().strip(fence[2][0]):
        return False
    return len(line) - len(line.lstrip(" \t")) <= _indent(fence) + 3


def _restarts(line: str, fence: re.Match[str]) -> bool:
    """Whether a line opens a block while one is open that the model forgot to close, or that quotes Markdown."""
    found = _opens(line) if fence[2] in line and line.lstrip(" \t").startswith(fence[2]) else None
    return found is not None and len(found[2]) == len(fence[2]) and _indent(found) <= _indent(fence) + 3


def _block(fence: re.Match[str], lines: list[str], heading: str, *, closed: bool) -> Block:
    if indent := _indent(fence):
        lines = [line[min(indent, len(line) - len(line.lstrip(" \t"))) :] for line in lines]
    text = "\n".join(lines)
    label = fence[3].strip()
    return Block(text + "\n" if closed and lines else text, closed, label, _path(text, label, heading))


def _path(text: str, label: str, heading: str) -> str:
    first = text[:600].lstrip()[:300].partition("\n")[0]
    named = _NAMED.search(label[:300]) if "." in label else None
    found = named or _HEADING.fullmatch(heading[:200].strip(' \t#*>`"-:')) or _COMMENT.fullmatch(first)
    return found[1] if found else ""


def _last(block: Block, mark: str) -> Block:
    """The last block, closed after all when its last line of code ends with the fence."""
    text = block.text.rstrip()
    return replace(block, text=text.removesuffix(mark), closed=True) if text.endswith(mark) else block


def tagged(text: str) -> list[Block]:
    """The files in tags such as <file name="a.cu">; without one, what is in <code> or <answer>."""
    files = _between(text, _OPEN_FILE, named=True)
    return files or _between(text, _OPEN_CODE, named=False)


def _between(text: str, opening: re.Pattern[str], *, named: bool) -> list[Block]:
    blocks: list[Block] = []
    found = opening.search(text)
    while found is not None and len(blocks) < _TAGS:
        closing = "</file>" if named else f"</{found[1]}>"
        end = text.find(closing, found.end())
        inner = text[found.end() : end if end >= 0 else len(text)]
        path = plain_path(found[1]) if named else ""
        blocks.append(_unwrapped(Block(inner, end >= 0, "", path)))
        found = opening.search(text, end) if end >= 0 else None
    return blocks


def _unwrapped(block: Block) -> Block:
    """The block without the fence or CDATA mark right within it."""
    text = block.text.strip("\n")
    if text.lstrip().startswith("<![CDATA["):
        text = text.lstrip().removeprefix("<![CDATA[").rstrip().removesuffix("]]>").strip("\n")
    within = fenced(text) if text.lstrip()[:3] in ("```", "~~~") else []
    if within:
        return replace(within[0], closed=within[0].closed and block.closed, path=block.path or within[0].path)
    return replace(block, text=text + "\n")


def plain_path(name: str) -> str:
    """The name when it is a plain relative path of a source file, else empty."""
    found = _WHOLE_PATH.fullmatch(name.strip())
    return found[1] if found else ""


def jsoned(text: str) -> list[Block]:
    """The files of a JSON object: {"files": [{"path", "content"}]} or {"code"}; unclosed when it does not end."""
    found = _JSON.search(text)
    if found is None:
        return []
    try:
        data, _ = json.JSONDecoder(strict=False).raw_decode(text, found.start())
    except (ValueError, RecursionError):
        return [Block(text[found.start() :], closed=False, label="json")]
    files = data.get("files")
    entries = files if isinstance(files, list) else [data]
    if isinstance(files, dict):
        entries = [{"path": path, "content": content} for path, content in files.items()]
    return [block for entry in entries if isinstance(entry, dict) for block in _entry(entry)]


def _entry(entry: dict[str, object]) -> list[Block]:
    name = next((entry[key] for key in ("path", "name", "filename", "file") if key in entry), "")
    text = next((entry[key] for key in ("content", "code", "source", "program", "text") if key in entry), None)
    if not isinstance(text, str):
        return []
    return [_unwrapped(Block(text.replace("\r\n", "\n"), True, "", plain_path(name) if isinstance(name, str) else ""))]


def set_apart(text: str, entry: str) -> list[Block]:
    """What an answer sets apart, by the first of tags, fences and JSON that it sends its program in."""
    found = tagged(text) if "<file" in text.lower() else []
    if not found:
        found = fenced(text)
        if not any(entry in block.text and not aside(block, python=True) for block in found):
            found = jsoned(text) or found or tagged(text)
    return [replace(block, text=plain(block.text)) for block in found]


def aside(block: Block, *, python: bool) -> bool:
    """Whether a block's label is that of something other than programs."""
    word = re.split(r"[\s:{,]", block.label.lower(), maxsplit=1)[0].lstrip(".")
    return word in _ASIDE or (not python and word in _PYTHON)


def plain(text: str) -> str:
    """The text with its HTML entities replaced, where all of it was escaped."""
    if "<" in text or ">" in text or ('"' in text and "&quot;" in text):
        return text
    return _ESCAPED.sub(lambda match: _ENTITIES[match[1]], text) if re.search("&(?:lt|gt|quot);", text) else text


def code_lines(text: str, *, python: bool) -> str:
    """What lies between the first and the last line that looks like code."""
    lines, form = text.split("\n"), _PY_LINE if python else _C_LINE
    code = [number for number, line in enumerate(lines) if form.match(line[:2000])]
    return "\n".join(lines[code[0] : code[-1] + 1]) + "\n" if code else ""


def is_patch(block: Block) -> bool:
    """Whether a block is a unified diff."""
    start = block.text[:600].lstrip()[:300]
    marked = re.match(r"diff --git |--- \S.*\n\+\+\+ \S|@@ -\d", start)
    return marked is not None or (block.label.lower().startswith(("diff", "patch")) and "\n@@" in "\n" + block.text)


def patched(patch: str, base: str) -> str | None:
    """The base after a unified diff; None where a hunk has no place, more than one, or the diff is of several files."""
    hunks = re.split(r"^(?=@@)", patch, maxsplit=_HUNKS, flags=re.MULTILINE)[1:]
    lines = base.replace("\r\n", "\n").split("\n")
    text, made, at = "\n" + "\n".join(lines) + "\n", [], 0
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    for hunk in hunks:
        head, *body = hunk.rstrip("\n").split("\n")
        old = "".join("\n" + line[1:] for line in body if line[:1] in ("", " ", "-")) + "\n"
        new = "".join("\n" + line[1:] for line in body if line[:1] in ("", " ", "+")) + "\n"
        stated = _HUNK.match(head)
        where = starts[min(max(int(stated[1]) - 1, 0), len(lines) - 1)] if stated else -1
        if where < at or not text.startswith(old, where):
            where = text.find(old, at)
            if where < 0 or text.find(old, where + 1) >= 0:
                return None
        if old == "\n" or any(line[:4] in ("+++ ", "diff") for line in body[-3:]):
            return None
        made += [text[at:where], new[:-1]]
        at = where + len(old) - 1
    return "".join((*made, text[at:]))[1:-1] if hunks else None
