"""The swap: a mutated function takes the place of the old one in a process that has imported the old one.

Keeps: MUT-24, MUT-25.

Only the inside of functions can be put in like this. What a module does while it is imported (constants, defaults,
decorators, class bodies) is its skeleton; what ran meanwhile may have left its mark anywhere; and code that somebody
holds besides its function may be compared with. In all these cases the swap refuses, and the mutation is imported.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

Place = tuple[str, int]
"""The name of a function and its first line, decorators included, as in its code object."""
Swap = tuple[FunctionType, CodeType]
"""A function, and what it is to do from now on."""
KIND = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
STARS = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
HAS_DOCSTRING: int = getattr(inspect, "CO_HAS_DOCSTRING", 0)
"""A flag since Python 3.14; before that the first constant of a function is its docstring or None."""
MONITORING: Any = getattr(sys, "monitoring", None)
"""What Python has since 3.12 to be told of each function once."""


class Unswappable(Exception):  # It is an answer, not a fault.
    """This mutation cannot be put into a process that has imported the file; the text says why."""


@dataclass(frozen=True)
class Source:
    """A file as the interpreter sees it: what runs when it is imported, and the functions that do not."""

    skeleton: tuple[Any, ...]
    functions: tuple[CodeType, ...]

    @classmethod
    def read(cls, text: bytes, filename: str) -> Source:
        """Take `text` apart. Outermost functions only: what is nested in one belongs to it.

        Compiled code is compared, not the syntax: that is several times as fast, and finds no change where none can be
        seen.
        Keeps: MUT-24.
        """
        functions: list[CodeType] = []
        try:
            code = compile(text, filename, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise Unswappable(f"{filename} does not compile: {error}") from error
        return cls(_meaning(code, functions), tuple(functions))


def _meaning(code: CodeType, functions: list[CodeType] | None = None) -> tuple[Any, ...]:
    """What `code` does, wherever it stands. With `functions`, those inside are put there and stand for themselves.

    Lambdas and comprehensions stay where they are: they have no name to be known by.
    Keeps: MUT-24.
    """
    consts = []
    for const in code.co_consts:
        if not isinstance(const, CodeType):
            # Since 3.13 a class remembers the line that it begins on, which says nothing.
            is_line = const == code.co_firstlineno and "__firstlineno__" in code.co_names
            consts.append("line" if is_line else (type(const), repr(const)))
        elif functions is None or const.co_name.startswith("<"):
            consts.append(_meaning(const))
        elif const.co_flags & inspect.CO_OPTIMIZED:
            functions.append(const)
            consts.append(_outside(const))
        else:
            consts.append(_meaning(const, functions))
    return (
        *_outside(code),
        code.co_flags,
        code.co_code,
        tuple(consts),
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        getattr(code, "co_exceptiontable", b""),
    )


def _outside(code: CodeType) -> tuple[Any, ...]:
    """What can be seen of a function without calling it: the name, the arguments, the docstring, what a call makes.

    Keeps: MUT-24.
    """
    arguments = code.co_argcount + code.co_kwonlyargcount + (code.co_flags & STARS).bit_count()
    first = code.co_consts[0] if code.co_consts else None
    documented = code.co_flags & HAS_DOCSTRING if HAS_DOCSTRING else isinstance(first, str)
    return (
        code.co_name,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_varnames[:arguments],
        code.co_flags & (KIND | STARS),
        first if documented else None,
    )


def _place(code: CodeType) -> Place:
    return code.co_name, code.co_firstlineno


class Ran:
    """The functions below `root` that run between `start` and `stop`: those that importing has used.

    Keeps: MUT-25.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._seen: dict[int, CodeType] = {}
        self._tool = -1
        self._profiler: Any = None
        self._rewrite: Callable[..., Any] | None = None

    def start(self) -> None:
        """Look from now on; cheap where the interpreter can be asked to report each function once."""
        if MONITORING is not None:
            self._tool = next(tool for tool in range(6) if MONITORING.get_tool(tool) is None)
            MONITORING.use_tool_id(self._tool, "lastbus")
            MONITORING.register_callback(self._tool, MONITORING.events.PY_START, self._on_start)
            MONITORING.set_events(self._tool, MONITORING.events.PY_START)
        else:
            import _lsprof  # In C: a function in Python, called for each call, would double the time of an import.

            threading.setprofile(self._on_call)
            self._profiler = _lsprof.Profiler()
            self._profiler.enable(subcalls=False, builtins=False)
            self._look_away_from_rewriting()

    def _look_away_from_rewriting(self) -> None:
        """Do not look while pytest rewrites assertions: half of all calls, and none of them the project's."""
        from _pytest.assertion import rewrite

        original = self._rewrite = getattr(rewrite, "_rewrite_test", None)
        if original is None:
            return

        def unseen(*args: Any) -> Any:
            self._profiler.disable()
            try:
                return original(*args)
            finally:
                self._profiler.enable(subcalls=False, builtins=False)

        rewrite._rewrite_test = unseen  # type: ignore[assignment]

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
            self._stop_profiler()
        inside = (code for code in self._seen.values() if code.co_filename.startswith(os.path.join(self._root, "")))
        ran = {(code.co_filename, (code.co_name, code.co_firstlineno)) for code in inside}
        self._seen.clear()
        return ran

    def _stop_profiler(self) -> None:
        from _pytest.assertion import rewrite

        threading.setprofile(None)
        self._profiler.disable()
        codes = (entry.code for entry in self._profiler.getstats())
        self._seen.update({id(code): code for code in codes if isinstance(code, CodeType)})
        self._profiler = None
        if self._rewrite is not None:
            rewrite._rewrite_test = self._rewrite


class Codes:
    """The functions that are alive below `root`, and the files they came from.

    To be made before `gc.freeze`, which hides objects from whoever looks for them.
    """

    def __init__(self, root: str, ran: set[tuple[str, Place]]) -> None:
        self.root = Path(root)
        self.ran = ran
        self.functions: dict[str, list[FunctionType]] = {}
        root = os.path.join(root, "")  # Other copies, whose bytecode may be used here, have names that begin like it.
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename.startswith(root):
                self.functions.setdefault(each.__code__.co_filename, []).append(each)
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        imported = {file for file in files if file and file.startswith(root) and file.endswith(".py")}
        self.texts = {file: Path(file).read_bytes() for file in imported | self.functions.keys() if _is_file(file)}
        self.sources: dict[str, Source] = {}

    def source(self, path: str) -> Source:
        """The file at `path` as it was imported, taken apart once."""
        if path not in self.sources:
            self.sources[path] = Source.read(self.texts[path], path)
        return self.sources[path]


def _is_file(file: str) -> bool:
    return Path(file).is_file()


def swaps(codes: Codes, file: str) -> list[Swap]:
    """What makes the functions of `file` do what the copy now says. `Unswappable` if it must be imported.

    A file that nothing has imported needs no swap: whoever imports it finds the mutation.
    Keeps: MUT-24, MUT-25.
    """
    path = str(codes.root / file)
    if not file.endswith(".py"):
        raise Unswappable(f"{file} is not Python")
    if path not in codes.texts:
        return []
    old = codes.source(path)
    new = Source.read(Path(path).read_bytes(), path)
    if old.skeleton != new.skeleton:
        raise Unswappable(f"{file} changes outside its functions")
    found: list[Swap] = []
    often = Counter(map(_place, old.functions))
    for before, after in zip(old.functions, new.functions, strict=True):
        if before == after:
            continue
        changed = _meaning(before) != _meaning(after)
        functions = _alive(codes, path, before) if often[_place(before)] == 1 else []
        obstacle = _obstacle(codes, path, functions, before, changed)
        if not obstacle:
            found += [(function, after) for function in functions]
        elif changed:
            raise Unswappable(f"{before.co_name} in {file} {obstacle}")
    return found


def _alive(codes: Codes, path: str, code: CodeType) -> list[FunctionType]:
    return [function for function in codes.functions.get(path, ()) if function.__code__ == code]


def _obstacle(codes: Codes, path: str, functions: list[FunctionType], before: CodeType, changed: bool) -> str:
    """Why `functions` cannot be given other code. A function that only moved to another line may have run before.

    Keeps: MUT-24, MUT-25.
    """
    if not functions:
        return "is no function that is still alive as it was written"
    if changed and (path, _place(before)) in codes.ran:
        return "ran while the tests were collected"
    for function in functions:
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
