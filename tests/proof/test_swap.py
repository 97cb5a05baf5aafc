"""The swap: what can be put into a process that has imported a file, and what must be imported anew."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from lastbus.proof.zygote.swap import Codes, Ran, Unswappable, swaps

NAME = "swapped_sample"
SHOP = """
import asyncio
import functools

LIMIT = 3
KEYS = []
ONE = lambda: 1


def loud(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)
    return wrapper


def prices(count=LIMIT):
    return [count * 2 for _ in range(count)]


async def order():
    await asyncio.sleep(0)
    return "plain"


def stock():
    yield 1


class Shelf:
    depth = 1

    @property
    def size(self):
        return self.depth + 1

    @staticmethod
    def made():
        return "here"

    @classmethod
    def named(cls):
        return cls.__name__


class Wide(Shelf):
    @property
    def size(self):
        return super().size + 1


@loud
def shout():
    return "ha"


def counter():
    seen = 0

    def count():
        nonlocal seen
        seen += 1
        return seen
    return count


def key():
    return "k"


def ask():
    return None


KEYS.append(key())
CODE = ask.__code__
"""


class Imported:
    """A module, imported as a warm process would, and its file, which a test may change."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / f"{NAME}.py"
        self.file.write_text(SHOP)
        ran = Ran(str(folder))
        ran.start()
        self.module = self._load()
        self.codes = Codes(str(folder), ran.stop())

    def _load(self) -> ModuleType:
        spec = importlib.util.spec_from_file_location(NAME, self.file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def change(self, old: str, new: str) -> set[str]:
        assert SHOP.count(old) == 1
        self.file.write_text(SHOP.replace(old, new))
        changes = swaps(self.codes, self.file.name)
        for function, code in changes:
            function.__code__ = code
        return {function.__qualname__ for function, _ in changes}

    def value(self, expression: str) -> object:
        return eval(expression, {**vars(self.module), "asyncio": asyncio})


@pytest.fixture
def imported(tmp_path: Path) -> Iterator[Imported]:
    one = Imported(tmp_path)
    yield one
    del sys.modules[NAME]


@pytest.mark.guarantee("MUT-24")
@pytest.mark.parametrize(
    ("old", "new", "expression", "value"),
    [
        ("count * 2", "count * 5", "prices()", [15, 15, 15]),
        ('"plain"', '"other"', "asyncio.run(order())", "other"),
        ("yield 1", "yield 2", "list(stock())", [2]),
        ("self.depth + 1", "self.depth + 5", "Shelf().size, Wide().size", (6, 7)),
        ('"here"', '"there"', "Shelf().made()", "there"),
        ("cls.__name__", "cls.__name__ * 2", "Wide.named()", "WideWide"),
        ("super().size + 1", "super().size + 7", "Wide().size", 9),
        ('"ha"', '"ho"', "shout()", "ho"),
        ("seen += 1", "seen += 4", "counter()()", 4),
    ],
    ids=["function", "coroutine", "generator", "property", "static", "class", "super", "decorated", "nested"],
)
def test_what_stands_inside_a_function_is_swapped_where_everybody_sees_it(imported, old, new, expression, value):
    assert len(imported.change(old, new)) == 1
    assert imported.value(expression) == value


@pytest.mark.guarantee("MUT-24")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("LIMIT = 3", "LIMIT = 4"),
        ("count=LIMIT", "count=4"),
        ("depth = 1", "depth = 2"),
        ("@loud\n", ""),
        ("    @staticmethod\n", "    @functools.lru_cache\n    @staticmethod\n"),
        ("class Wide(Shelf)", "class Wide(Shelf, dict)"),
        ("import functools\n", "import functools, json\n"),
        ("def stock()", "async def stock()"),
        ("KEYS.append(key())", "KEYS.extend([key(), 1])"),
        ("def ask():", "def told(): ...\ndef ask():"),
        ("yield 1", "return [1]"),
        ("def prices(count=LIMIT):", "def prices(many=LIMIT, count=2):"),
        ("def prices(count=LIMIT):", "def prices(many=LIMIT):"),
        ("def key():", "def key(*_):"),
        ("    yield 1", "    'What there is.'\n    yield 1"),
        ("lambda: 1", "lambda: 2"),
        ("super().size + 1", "self.depth"),
    ],
    ids=[
        "constant",
        "default",
        "attribute",
        "decorator",
        "decorators",
        "base",
        "import",
        "async",
        "statement",
        "more",
        "kind",
        "argument",
        "name of an argument",
        "any arguments",
        "docstring",
        "lambda",
        "scope",
    ],
)
def test_what_runs_while_a_module_is_imported_is_not_swapped(imported, old, new):
    with pytest.raises(Unswappable, match="changes outside its functions"):
        imported.change(old, new)


def test_what_this_interpreter_cannot_read_is_not_swapped(imported):
    with pytest.raises(Unswappable, match="does not compile"):
        imported.change("yield 1", "yield yield")


@pytest.mark.guarantee("MUT-25")
@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('return "k"', 'return "x"', "ran while the tests were collected"),
        ("return function(*args)", "return None", "ran while the tests were collected"),
        ("return None", "return 1", "held by something else"),
    ],
    ids=["called", "decorator", "held"],
)
def test_a_function_that_left_its_mark_on_the_import_is_not_swapped(imported, old, new, why):
    with pytest.raises(Unswappable, match=why):
        imported.change(old, new)


@pytest.mark.guarantee("MUT-24")
def test_functions_below_a_change_move_with_it(imported):
    below = imported.module.key.__code__.co_firstlineno

    changed = imported.change('    return "plain"', '\n    return "other"')

    assert changed >= {"order", "stock", "Shelf.made", "counter"}
    assert imported.module.key.__code__.co_firstlineno == below + 1


def test_what_is_no_python_is_not_swapped(imported):
    with pytest.raises(Unswappable, match="is not Python"):
        swaps(imported.codes, "prices.json")


def test_a_file_that_nobody_imported_needs_no_swap(imported):
    assert swaps(imported.codes, "later.py") == []
