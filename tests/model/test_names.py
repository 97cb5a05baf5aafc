"""What an error shows of a name that is refused."""

from __future__ import annotations

import pytest

from lastbus._model.names import check_name


@pytest.mark.guarantee("CORE-36")
@pytest.mark.parametrize(
    ("bad", "shown"),
    [(" ", "got ' '"), (7, "got 7"), ("ü" * 600, "...")],
    ids=["blank", "number", "long"],
)
def test_a_refused_name_is_shown_in_ascii_and_shortly(bad: object, shown: str) -> None:
    with pytest.raises(ValueError, match="event_type") as caught:
        check_name("event_type", bad)

    assert str(caught.value).endswith(shown)
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 200
