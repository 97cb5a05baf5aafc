"""Mortal: what a process that dies in the middle of its work leaves undone."""

from __future__ import annotations

from typing import Any


class Mortal:
    """An object of a process that dies after so many calls: from then on nothing that it asks for happens."""

    def __init__(self, target: Any, calls_left: list[int]) -> None:
        self._target = target
        self._calls_left = calls_left

    def __getattr__(self, name: str) -> Any:
        if not callable(getattr(self._target, name)):
            return getattr(self._target, name)

        async def call(*args: Any, **keywords: Any) -> Any:
            if not self._calls_left[0]:
                raise ConnectionResetError("this process is dead")
            self._calls_left[0] -= 1
            return await getattr(self._target, name)(*args, **keywords)

        return call
