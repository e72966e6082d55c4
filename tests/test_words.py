"""The names and docstrings of the package, room by room (docs/contributing/style.md)."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tablemapper

from .parsed import nodes, parsed

PACKAGE = Path(tablemapper.__file__).parent
MOST = 1.5
"""Names that say nothing, in percent of all names of a room. No docstring opens with a question or a preposition, and no
sentence in one has more than 30 words."""
PRONOUNS = (
    "some each others several every both such what which it that there here who whom none any more rest other one"
)
PARTICIPLES = """found made held kept known given wanted taken opened stored read said told named asked meant done ended
    passed changed written declared dropped followed gone needed left shown come claimed served lost put got sent noted
    listed used brought called moved begun tried added removed joined met counted refused lacking waiting standing owed
    concerned"""
ADVERBS = """before after behind beside ahead anew again back now then later alone together apart elsewhere whole own
    inner outer last former past once further besides"""
VAGUE = frozenset(f"{PRONOUNS} {PARTICIPLES} {ADVERBS}".split())
VERBS = frozenset(
    {"read", "put", "one", "each", "any", "join", "last", "rest"}
)  # of functions: what `Query.one` is everywhere
STATES = frozenset({"before", "after", "other"})  # of parameters: a pair of states, the operand of ``__eq__``
QUESTIONS = "what who whose whom how where which when why"
PREPOSITIONS = """it there this these that those as from to for in on at of by with between beside behind before
    after"""
NO_OPENINGS = frozenset(f"{QUESTIONS} {PREPOSITIONS}".split())
MIRRORS = ("azure", "sqlite", "aio")  # folders whose modules may be called as those that they mirror
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def _room(path: Path) -> str:
    """Return the room of a module: its folder, below `engines` with the name of the engine."""
    parts = path.relative_to(PACKAGE).parts[:-1]
    return "/".join(parts[: 1 + (parts[:1] == ("engines",))]) or "."


ROOMS: dict[str, list[Path]] = {}
for _path in sorted(PACKAGE.rglob("*.py")):
    ROOMS.setdefault(_room(_path), []).append(_path)


def _names(tree: ast.Module) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield each name that a module binds, and the words that may stand for it."""
    for node in nodes(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield name, frozenset()
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, frozenset()
            case ast.arg(arg=name) if name not in ("self", "cls"):
                yield name, STATES
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if not name.startswith("__"):
                yield name, VERBS


def _vague(tree: ast.Module) -> tuple[list[str], int]:
    """Return the names of a module that say nothing, and the number of all; `left` beside a `right` is an operand."""
    bound = list(_names(tree))
    operands = {"left"} if ("right", STATES) in bound or ("right", frozenset()) in bound else set()
    words = [(name.strip("_").lower(), allowed | operands) for name, allowed in bound]
    return [word for word, allowed in words if word in VAGUE - allowed], len(words)


def _docstrings(tree: ast.Module) -> Iterator[str]:
    for node in nodes(tree):
        if isinstance(node, ast.Module | ast.ClassDef | FUNCTION) and (text := ast.get_docstring(node)):
            yield text


def _opening(text: str) -> str:
    return re.sub(r"\W", "", text.split(maxsplit=1)[0]).lower()


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a docstring, without code and tables; each argument is one of its own."""
    text = re.sub(r"``?[^`]*``?|https?://\S+", "CODE", text)
    for block in re.split(r"\n\s*\n|\n\s*(?=[-*>|+] |\w+:\s)", text):
        if not re.search(r"[├└]|===", block):
            yield from re.split(r"(?<=[.!?:;])\s+(?=[A-Z(`\"])", " ".join(block.split()))


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_has_few_names_that_say_nothing(room: str) -> None:
    trees = [parsed(path) for path in ROOMS[room]]
    counts = [_vague(tree) for tree in trees]
    vague = Counter(word for words, _ in counts for word in words)
    share = round(100 * vague.total() / max(1, sum(number for _, number in counts)), 1)
    texts = [text for tree in trees for text in _docstrings(tree)]
    openings = [text.split("\n")[0] for text in texts if _opening(text) in NO_OPENINGS]
    long = [sentence for text in texts for sentence in _sentences(text) if len(sentence.split()) > 30]
    hints = "; ".join([*map(str, vague.most_common(5)), *openings[-3:], *long[-3:]])
    assert share <= MOST, f"{share} %: {hints}"
    assert not openings + long, hints


def test_no_class_and_no_module_has_the_name_of_another() -> None:
    names: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        folders = path.relative_to(PACKAGE).parts[:-1]
        mirror = next((part for part in MIRRORS if part in folders), "")
        names.update([f"{mirror}/{path.stem}"] if not path.stem.startswith("__") else [])
        names.update(re.findall(r"^class ([A-Z]\w*)", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert [name for name, number in names.items() if number > 1] == []


def test_the_checker_sees_vague_names_and_questions() -> None:
    tree = ast.parse('"""What it is."""\ndef found(given, *, other):\n    for one in given:\n        x.held = one')
    assert [*map(sorted, _vague(tree)[:1]), _vague(tree)[1]] == [["found", "given", "held", "one"], 5]
    assert _vague(ast.parse("left, right = before, after")) == ([], 2)
    assert [_opening(text) in NO_OPENINGS for text in _docstrings(tree)] == [True]
    assert [len(part.split()) for part in _sentences("One two. Three ``four five`` six.\n\nSeven.")] == [2, 3, 1]
