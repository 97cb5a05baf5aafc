"""The runtime: what the guard reads of asyncio is checked before it is relied upon, and nothing else is needed."""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lastbus._close import selfclose
from lastbus._close.selfclose import KINDS, missing_in_runtime
from lastbus._kit.shapes import versions
from lastbus.testing import Gate
from tests.selfclose.scene import at_work, how_it_ends

OLDEST = ["Task", "Future", "Queue", "Event", "Condition", "Semaphore", "Lock", "StreamReader"]


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which the runtime was not checked yet."""
    monkeypatch.setattr(selfclose, "_ANSWER", [])


@pytest.mark.usefixtures("unasked")
@pytest.mark.guarantee("SELF-25", "SELF-26")
async def test_this_python_has_all_that_the_guard_reads() -> None:
    assert missing_in_runtime() is None


@pytest.mark.guarantee("SELF-14", "SELF-26")
def test_the_guard_knows_what_this_python_has_and_no_more() -> None:
    known = [each.__name__ for each in KINDS]

    assert known == (
        OLDEST
        + (["Barrier", "TaskGroup"] if sys.version_info >= (3, 11) else [])
        + (["_AsCompletedIterator"] if sys.version_info >= (3, 13) else [])
    )


@pytest.mark.usefixtures("unasked")
@pytest.mark.guarantee("SELF-26")
async def test_what_a_python_lacks_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Barrier", "TaskGroup"):
        monkeypatch.delattr(asyncio, name, raising=False)
    monkeypatch.delattr(asyncio.tasks, "_AsCompletedIterator", raising=False)

    monkeypatch.setattr(selfclose, "KINDS", selfclose._kinds())

    assert [each.__name__ for each in selfclose.KINDS] == OLDEST
    assert missing_in_runtime() is None


def books(attributes: str, wakes: str = "") -> tuple[tuple[str, ...], tuple[str, ...], None]:
    """What a kind must have and what of it is woken: all of it, unless something else is said."""
    return tuple(attributes.split()), tuple((wakes or attributes).split()), None


@pytest.mark.guarantee("SELF-14")
def test_each_kind_is_read_by_the_books_that_it_keeps() -> None:
    kinds = selfclose._kinds()

    kept = {each.__name__: (kind.attributes, kind.wakes, kind.unclaimed) for each, kind in kinds.items()}
    assert [kept[name] for name in OLDEST] == [
        books("_callbacks"),
        books("_callbacks"),
        books("_getters _putters"),
        *[books("_waiters")] * 4,
        books("_waiter"),
    ]
    if sys.version_info >= (3, 11):
        assert kept["Barrier"] == books("_cond")
        assert kept["TaskGroup"] == (("_tasks", "_on_completed_fut"), ("_on_completed_fut",), "_tasks")
    if sys.version_info >= (3, 13):
        assert kept["_AsCompletedIterator"] == books("_done _todo", "_done")


@pytest.mark.guarantee("SELF-26")
async def test_what_is_looked_at_is_of_the_kind_itself() -> None:
    samples = {known: kind.sample() for known, kind in selfclose._kinds().items()}

    # On Python 3.10 the runner of the tests has a kind of task of its own.
    assert samples.pop(asyncio.Task) is asyncio.current_task()
    assert [known for known, sample in samples.items() if type(sample) is not known] == []


@pytest.mark.guarantee("SELF-26")
async def test_where_no_task_runs_a_future_is_looked_at_for_one() -> None:
    looked_at = asyncio.get_running_loop().create_future()
    sample = selfclose._kinds()[asyncio.Task].sample

    asyncio.get_running_loop().call_soon(lambda: looked_at.set_result(sample()))

    assert type(await looked_at) is asyncio.Future


@pytest.mark.usefixtures("unasked")
@pytest.mark.guarantee("SELF-25")
@pytest.mark.parametrize("known", KINDS, ids=lambda each: each.__name__)
async def test_what_is_missing_is_named(known: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, known, KINDS[known]._replace(attributes=(*KINDS[known].attributes, "_bogus")))

    assert missing_in_runtime() == f"{known.__name__}._bogus"


@pytest.mark.usefixtures("unasked")
@pytest.mark.guarantee("SELF-25")
async def test_a_missing_attribute_refuses_while_a_handler_runs_and_only_then(
    monkeypatch: pytest.MonkeyPatch, gate: Gate
) -> None:
    monkeypatch.setitem(KINDS, asyncio.Queue, KINDS[asyncio.Queue]._replace(attributes=("_bogus",)))
    async with at_work(gate) as bus:
        while_it_works = await how_it_ends(bus.close())
        gate.open()
        await asyncio.wait(set(bus._pending_tasks))

        assert [while_it_works, await how_it_ends(bus.close())] == ["unsupported-runtime", "returned"]


@pytest.mark.usefixtures("unasked")
@pytest.mark.guarantee("SELF-25")
async def test_it_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = missing_in_runtime()
    monkeypatch.setitem(KINDS, asyncio.Queue, KINDS[asyncio.Queue]._replace(attributes=("_bogus",)))

    assert [first, missing_in_runtime()] == [None, None]


@pytest.mark.usefixtures("unasked")
@pytest.mark.guarantee("SELF-27")
def test_an_answer_from_outside_a_loop_is_not_kept() -> None:
    async def ask() -> str | None:
        return missing_in_runtime()

    outside = missing_in_runtime()

    assert outside is not None
    assert "a running event loop" in outside
    assert asyncio.run(ask()) is None


@pytest.mark.usefixtures("unasked")
@pytest.mark.guarantee("SELF-24")
async def test_a_loop_that_makes_no_futures_is_named_and_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> bool:
        raise RuntimeError("no")

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.get_running_loop(), "get_debug", broken)
        missing = missing_in_runtime()

    assert missing is not None
    assert "futures (RuntimeError)" in missing
    assert missing_in_runtime() is None


@pytest.mark.guarantee("SELF-28")
def test_the_guard_is_loaded_from_its_file_alone_and_answers() -> None:
    command = versions.command(sys.executable, "-S")

    ran = subprocess.run(command, capture_output=True, text=True, timeout=50)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["missing"] is None


@pytest.mark.guarantee("SELF-28")
def test_the_guard_imports_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(str(selfclose.__file__)).read_text(encoding="utf-8"))
    roots = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or "."]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    assert roots <= sys.stdlib_module_names
