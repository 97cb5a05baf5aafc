"""Refusal: why a close from inside is refused, each reason by a name of its own and with its way out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from lastbus._close.selfclose import missing_in_runtime, wake_verdict
from lastbus._close.state import Future
from lastbus._errors import CloseError

_WAY_OUT: Final = "call request_close() and return; whoever no handler waits for may await close()"
_KINDS: Final = {"in-graph": "self-close", "incomplete": "wake-graph-incomplete", "over-budget": "self-close-budget"}


def refusal(inside: bool, in_flight: Iterable[Future[Any]]) -> CloseError | None:
    """The error for a call of `close()` for which a handler may be waiting; None if none is, as far as can be seen.

    `inside` says that the caller is a handler, or descends from one. Else what the caller wakes is looked through for
    what is `in_flight`. Nothing is changed, and nothing logged.

    Keeps: SELF-03, SELF-09, SELF-12, SELF-13, SELF-21, SELF-25.
    """
    if inside:
        return CloseError("self-close", f"a handler cannot wait for its own end; {_WAY_OUT}")
    missing = missing_in_runtime()
    if missing is not None:
        return CloseError(
            "unsupported-runtime", f"handlers run, and this asyncio lacks {missing} to see who waits; {_WAY_OUT}"
        )
    found = wake_verdict(asyncio.current_task(), in_flight)
    if found.word == "clean":
        return None
    reasons = {
        "in-graph": "a handler waits for this call, through others",
        "incomplete": f"whether a handler waits for this call cannot be seen: {found.detail}",
        "over-budget": f"whether a handler waits for this call would take too long to see: it wakes {found.detail}",
    }
    return CloseError(_KINDS[found.word], f"{reasons[found.word]}; {_WAY_OUT}")
