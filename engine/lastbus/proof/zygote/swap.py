"""The swap: a mutated function takes the place of the old one in a process that has imported the old one.

Keeps: MUT-24, MUT-25.

Only the inside of functions can be put in like this. What a module does while it is imported (constants, defaults,
decorators, class bodies) is its skeleton; what ran meanwhile may have left its mark anywhere; and code that somebody
holds besides its function may be compared with. In all these cases the swap refuses, and the mutation is imported.
"""

from __future__ import annotations

import ast
import gc
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

Place = tuple[str, int]
"""The name of a function and its first line, decorators included, as in its code object."""
KIND = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
MONITORING: Any = getattr(sys, "monitoring", None)
"""What Python has since 3.12 to be told of each function once."""
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


class Unswappable(Exception):  # It is an answer, not a fault.
    """This mutation cannot be put into a process that has imported the file; the text says why."""


@dataclass(frozen=True)
class Source:
    """A file taken apart: what runs when it is imported, and the functions that do not."""

    skeleton: str
    functions: tuple[tuple[Place, str], ...]
    codes: dict[Place, CodeType]

    @classmethod
    def read(cls, text: bytes, filename: str) -> Source:
        """Take `text` apart. Outermost functions only: what is nested in one belongs to it.

        Keeps: MUT-24.
        """
        tree = ast.parse(text)
        nodes = list(_outermost(tree))
        functions = tuple((_place(node), ast.dump(node)) for node in nodes)
        for node in nodes:
            node.body = node.body[:1] if ast.get_docstring(node, clean=False) is not None else []
        code = compile(text, filename, "exec", dont_inherit=True)
        return cls(ast.dump(tree), functions, dict(_unique(_function_codes(code))))


def _outermost(node: ast.AST) -> Iterator[Any]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function):
            yield child
        else:
            yield from _outermost(child)


def _place(node: Any) -> Place:
    return node.name, min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def _function_codes(code: CodeType) -> Iterator[tuple[Place, CodeType]]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            if const.co_flags & inspect.CO_OPTIMIZED:
                yield (const.co_name, const.co_firstlineno), const
            else:
                yield from _function_codes(const)


def _unique(pairs: Iterable[tuple[Place, CodeType]]) -> Iterator[tuple[Place, CodeType]]:
    known = list(pairs)
    often = Counter(place for place, _ in known)
    return ((place, code) for place, code in known if often[place] == 1)


class Ran:
    """The functions below `root` that run between `start` and `stop`: those that importing has used.

    Keeps: MUT-25.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._seen: dict[int, CodeType] = {}
        self._tool = -1

    def start(self) -> None:
        """Look from now on; cheap where the interpreter can be asked to report each function once."""
        if MONITORING is not None:
            self._tool = next(tool for tool in range(6) if MONITORING.get_tool(tool) is None)
            MONITORING.use_tool_id(self._tool, "lastbus")
            MONITORING.register_callback(self._tool, MONITORING.events.PY_START, self._on_start)
            MONITORING.set_events(self._tool, MONITORING.events.PY_START)
        else:
            threading.setprofile(self._on_call)
            sys.setprofile(self._on_call)

    def _on_start(self, code: CodeType, _offset: int) -> object:
        self._seen[id(code)] = code  # Held, so that no other code gets its id.
        return MONITORING.DISABLE

    def _on_call(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            self._seen[id(frame.f_code)] = frame.f_code

    def stop(self) -> set[tuple[str, Place]]:
        """The file and place of each function that ran; nothing of them is held any longer."""
        if MONITORING is not None:
            MONITORING.set_events(self._tool, 0)
            MONITORING.free_tool_id(self._tool)
        else:
            sys.setprofile(None)
            threading.setprofile(None)
        inside = (code for code in self._seen.values() if code.co_filename.startswith(self._root))
        ran = {(code.co_filename, (code.co_name, code.co_firstlineno)) for code in inside}
        self._seen.clear()
        return ran


class Codes:
    """The functions that are alive below `root`, and the files they came from.

    To be made before `gc.freeze`, which hides objects from whoever looks for them.
    """

    def __init__(self, root: str, ran: set[tuple[str, Place]]) -> None:
        self.root = Path(root)
        self.ran = ran
        self.functions: dict[str, list[FunctionType]] = {}
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename.startswith(root):
                self.functions.setdefault(each.__code__.co_filename, []).append(each)
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        imported = {file for file in files if file and file.startswith(root) and file.endswith(".py")}
        self.texts = {file: Path(file).read_bytes() for file in imported | self.functions.keys() if _is_file(file)}
        self.sources: dict[str, Source] = {}

    def know(self, files: Iterable[str]) -> None:
        """Take apart those of `files` that were imported, so that every child finds it done."""
        for file in files:
            path = str(self.root / file)
            if path in self.texts and path not in self.sources:
                self.sources[path] = Source.read(self.texts[path], path)


def _is_file(file: str) -> bool:
    return Path(file).is_file()


def swap(codes: Codes, file: str) -> int:
    """Make the functions of `file` what the copy now says; how many were changed. `Unswappable` if it must be imported.

    A file that nothing has imported needs no swap: whoever imports it finds the mutation.
    Keeps: MUT-24, MUT-25.
    """
    path = str(codes.root / file)
    if not file.endswith(".py"):
        raise Unswappable(f"{file} is not Python")
    if path not in codes.sources:
        return 0
    old = codes.sources[path]
    new = Source.read(Path(path).read_bytes(), path)
    if old.skeleton != new.skeleton:
        raise Unswappable(f"{file} changes outside its functions")
    done = 0
    for (place, before), (new_place, after) in zip(old.functions, new.functions, strict=True):
        if before == after and old.codes.get(place) == new.codes.get(new_place):
            continue
        functions = _alive(codes, path, old.codes.get(place))
        obstacle = _obstacle(codes, path, place, functions, new.codes.get(new_place), before != after)
        if not obstacle:
            for function in functions:
                function.__code__ = new.codes[new_place]
            done += before != after
        elif before != after:
            raise Unswappable(f"{place[0]} in {file} {obstacle}")
    return done


def _alive(codes: Codes, path: str, code: CodeType | None) -> list[FunctionType]:
    return [function for function in codes.functions.get(path, ()) if function.__code__ == code]


def _obstacle(
    codes: Codes, path: str, place: Place, functions: list[FunctionType], code: CodeType | None, changed: bool
) -> str:
    """Why `functions` cannot be given `code`. A function that only moved to another line may have run before.

    Keeps: MUT-24, MUT-25.
    """
    if code is None or not functions:
        return "is no function that is still alive as it was written"
    if changed and (path, place) in codes.ran:
        return "ran while the tests were collected"
    for function in functions:
        if function.__code__.co_freevars != code.co_freevars:
            return "changes what it takes from the scope around it"
        if (function.__code__.co_flags ^ code.co_flags) & KIND:
            return "becomes another kind of function"
        sharing = sum(other.__code__ is function.__code__ for other in functions)
        if _holders(function) > sharing:
            return "has its code held by something else"
    return ""


def _holders(function: FunctionType) -> int:
    """How many objects hold the code of `function`; its function is one.

    What the question itself holds is found by asking about a function whose code nobody else has.
    Keeps: MUT-25.
    """
    scope: dict[str, Any] = {}
    exec("def alone(): ...", scope)  # noqa: S102
    return sys.getrefcount(function.__code__) - sys.getrefcount(scope["alone"].__code__) + 1
