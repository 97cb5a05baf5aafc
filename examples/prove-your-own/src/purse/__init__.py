"""Splitting money among people."""


def split(cents: int, people: int) -> list[int]:
    """What each of `people` gets of `cents`; who comes first gets the cents that are left over.

    Keeps: PURSE-01, PURSE-02.
    """
    _refuse_nobody(people)
    share, left_over = divmod(cents, people)
    return [share + (1 if number < left_over else 0) for number in range(people)]


def _refuse_nobody(people: int) -> None:
    """`ValueError` unless there is somebody to share with.

    Keeps: PURSE-03.
    """
    if people < 1:
        raise ValueError(f"there are {people} people to share with: name at least one")
