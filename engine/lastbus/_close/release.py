"""Release: let go of one component by whatever verb it offers; its failure is its own and stops nobody else.

Drivers have used `aclose`, `close` and `disconnect` for the same thing, some of them returning nothing to await, and
some keep an injected connection pool open unless told otherwise.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, Final

logger = logging.getLogger("lastbus.close")

_VERBS: Final = ("aclose", "close", "disconnect")
_POOL_FLAG: Final = "close_connection_pool"


async def release(name: str, component: object) -> None:
    """Release `component`, awaiting what that returns where it can be; a failure becomes a WARNING with its name.

    A cancellation inside a component is no failure of the component: it ends the teardown.

    Keeps: CLOSE-18, CLOSE-19, CLOSE-20, CLOSE-21, CLOSE-23, CLOSE-24, CLOSE-30, RES-R4.
    """
    try:
        verb = _verb_of(component)
        result = verb(**{_POOL_FLAG: True}) if _takes_pool_flag(verb) else verb()
        if inspect.isawaitable(result):
            await result
    except Exception:
        logger.warning("close: the component %s could not be released", name, exc_info=True)


def _verb_of(component: object) -> Callable[..., Any]:
    """The first verb that `component` has; `AttributeError` if it has none.

    Keeps: CLOSE-17.
    """
    for name in _VERBS:
        verb = getattr(component, name, None)
        if verb is not None:
            return verb  # type: ignore[no-any-return]
    raise AttributeError(f"{type(component).__name__} has none of {', '.join(_VERBS)}")


def _takes_pool_flag(verb: Callable[..., Any]) -> bool:
    """Whether the signature says so by name; what cannot be known counts as no.

    Keeps: CLOSE-20, CLOSE-21, CLOSE-22.
    """
    try:
        return _POOL_FLAG in inspect.signature(verb).parameters
    except (TypeError, ValueError):
        return False
