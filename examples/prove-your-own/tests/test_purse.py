"""What `split` promises."""

import purse
import pytest


@pytest.mark.guarantee("PURSE-01")
@pytest.mark.parametrize("cents", [0, 9, 10, 11, -10])
def test_the_shares_add_up_to_the_amount(cents):
    assert sum(purse.split(cents, 3)) == cents


@pytest.mark.guarantee("PURSE-02")
def test_two_shares_differ_by_one_cent_at_most():
    shares = purse.split(11, 3)

    assert max(shares) - min(shares) <= 1


@pytest.mark.guarantee("PURSE-03")
@pytest.mark.parametrize("people", [0, -1])
def test_money_is_not_split_among_nobody(people):
    with pytest.raises(ValueError, match=f"there are {people} people"):
        purse.split(10, people)
