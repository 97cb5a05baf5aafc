"""Release: a component is let go of by whatever verb it has, and its failure is its own."""

from __future__ import annotations

from typing import Any

import pytest

from lastbus._close.release import release


class Noting:
    """The base of the components here: it notes by which verb it was released."""

    def __init__(self) -> None:
        self.released: list[str] = []


class Modern(Noting):
    async def aclose(self) -> None:
        self.released.append("aclose")

    async def close(self) -> None:
        self.released.append("close")


class Plain(Noting):
    def close(self) -> None:
        self.released.append("close")


class Old(Noting):
    async def disconnect(self) -> None:
        self.released.append("disconnect")


class Deferred(Noting):
    def close(self) -> Any:
        async def later() -> None:
            self.released.append("close")

        return later()


class Pooled(Noting):
    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        self.released.append(f"aclose({close_connection_pool})")


class Greedy(Noting):
    async def aclose(self, **options: Any) -> None:
        self.released.append(f"aclose({options})")


@pytest.mark.parametrize(
    ("kind", "released"),
    [
        (Modern, "aclose"),
        (Plain, "close"),
        (Old, "disconnect"),
        (Deferred, "close"),
        (Pooled, "aclose(True)"),
        (Greedy, "aclose({})"),
    ],
)
async def test_a_component_is_released_by_the_first_verb_it_has(
    kind: type[Noting], released: str, caplog: pytest.LogCaptureFixture
) -> None:
    component = kind()

    await release("it", component)

    assert component.released == [released]
    assert caplog.records == []


class Nothing:
    """Has no verb at all."""


class Explosive:
    """Raises already when it is looked at."""

    @property
    def aclose(self) -> Any:
        raise RuntimeError("do not look")


class Failing:
    async def aclose(self) -> None:
        raise OSError("stuck")


@pytest.mark.parametrize("kind", [Nothing, Explosive, Failing])
async def test_a_component_that_cannot_be_released_is_named_in_one_warning(
    kind: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    await release("the-component", kind())

    assert ["the-component" in each.getMessage() for each in caplog.records] == [True]
    assert [each.levelname for each in caplog.records] == ["WARNING"]


async def test_a_verb_whose_signature_cannot_be_known_is_called_bare() -> None:
    class Opaque:
        """Callable, with a signature that says nonsense."""

        __signature__ = "nonsense"

        def __init__(self) -> None:
            self.calls: list[tuple[Any, ...]] = []

        def __call__(self, *args: Any, **options: Any) -> None:
            self.calls.append((args, options))

    class Component:
        close = Opaque()

    await release("it", Component())

    assert Component.close.calls == [((), {})]
