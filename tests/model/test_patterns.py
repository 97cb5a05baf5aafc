"""Which event types the pattern of a handler matches, on every platform alike."""

from __future__ import annotations

import pytest

from lastbus import EventBus
from lastbus._model.patterns import is_exact

TABLE = [
    ("user.*", "user.created", True),
    ("user.*", "user", False),
    ("user.*", "user.a.b", True),
    ("user.*", "order.created", False),
    ("*", "anything", True),
    ("*", "a\nb", True),
    (None, "anything", True),
    ("user.?", "user.a", True),
    ("user.?", "user.ab", False),
    ("a[12]", "a1", True),
    ("a[!b]", "ac", True),
    ("a[!b]", "ab", False),
    ("a[1].x", "a[1].x", False),
    ("a[[]1].x", "a[1].x", True),
    ("A.*", "a.b", False),
    ("a.b", "A.B", False),
    ("a\\*", "a\\z", True),
    ("a.b", "a-b", False),
    ("plain", "plain", True),
]


@pytest.mark.guarantee("CORE-08")
@pytest.mark.parametrize(("pattern", "event_type", "matches"), TABLE)
def test_a_pattern_matches_as_in_a_shell_and_minds_case(pattern: str | None, event_type: str, matches: bool) -> None:
    assert EventBus.matches_event_type(pattern, event_type) is matches


@pytest.mark.guarantee("CORE-08")
@pytest.mark.parametrize("pattern", [pattern for pattern, _, _ in TABLE if pattern is not None])
def test_a_pattern_called_exact_matches_nothing_but_itself(pattern: str) -> None:
    types = [event_type for _, event_type, _ in TABLE]

    if is_exact(pattern):
        assert EventBus.matches_event_type(pattern, pattern)
        assert not any(EventBus.matches_event_type(pattern, other) for other in types if other != pattern)


@pytest.mark.guarantee("CORE-08")
@pytest.mark.parametrize(
    ("pattern", "exact"),
    [("order.paid", True), ("", True), ("]", True), ("order.*", False), ("?", False), ("[a]", False)],
)
def test_a_pattern_without_wildcards_is_exact(pattern: str, exact: bool) -> None:
    assert is_exact(pattern) is exact
