"""What is wrong with mutations as they are written, told without running anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastbus.proof import anchors
from lastbus.proof.anchors import nearest, unique
from lastbus.proof.config import Project
from tests.proof.sample import CODE, Sample

TEXT = "def one():\n    x = 1\n    return x\n\n\ndef two():\n    x = 1\n    return x + 1\n"


def words(sample: Sample) -> dict[str, str]:
    """The word for what is wrong with each mutation of the sample that has a fault."""
    return {fault.source.rpartition("/")[2].partition(".")[0]: fault.word for fault in anchors.check(sample.project)[1]}


@pytest.mark.guarantee("MUT-49")
def test_everything_that_is_wrong_is_told_at_once(sample):
    sample.mutate("fine")
    sample.mutate("lost", old="return three")
    sample.mutate("ambiguous", old="return ")
    sample.mutate("no-op", new="return one + two  # or more")
    sample.mutate("unparsable", new="return one +")
    sample.mutate("no-file", file="src/gone.py")
    sample.mutate("no-test", killers=["tests/test_shop.py::test_gone"])
    sample.mutate("no-test-file", killers=["tests/test_gone.py::test_gone"])
    sample.write("mutations/other/fine.json", (sample.root / "mutations/sum/fine.json").read_text())
    sample.write("mutations/sum/bad.json", '{"id": "bad"}')

    assert words(sample) == {
        "fine": "malformed",
        "lost": "anchor-lost",
        "ambiguous": "anchor-ambiguous",
        "no-op": "no-op",
        "unparsable": "unparsable",
        "no-file": "anchor-lost",
        "no-test": "unknown-killer",
        "no-test-file": "unknown-killer",
        "bad": "malformed",
    }
    assert anchors.check(sample.project)[0] == 10


@pytest.mark.guarantee("MUT-49")
def test_nothing_is_wrong_with_good_mutations(sample):
    sample.write(
        "tests/test_more.py",
        "from kit import Base\n\nclass TestMore(Base):\n    async def test_own(self): ...\n\nTestMade = kit.made()\n",
    )
    names = ["TestMade::runTest", "TestMore::test_own", "TestMore::test_inherited", "TestMore::test_own[a-b]"]
    sample.mutate("fine", killers=[f"tests/test_more.py::{name}" for name in names])

    assert anchors.check(sample.project) == (1, [])


@pytest.mark.guarantee("MUT-49")
def test_a_test_that_only_another_file_defines_is_unknown(sample):
    sample.write("tests/test_more.py", "class TestMore:\n    def test_own(self): ...\n# def test_said(): ...\n")
    sample.mutate("fine", killers=["tests/test_more.py::TestMore::test_gone"])

    (fault,) = anchors.check(sample.project)[1]

    assert fault.reason == "tests/test_more.py::TestMore::test_gone: tests/test_more.py does not define test_gone"
    assert fault.line == 11


@pytest.mark.guarantee("MUT-50")
@pytest.mark.parametrize(
    ("old", "code", "line", "text"),
    [
        (
            "    return one + two\n",
            CODE.replace("return one + two", "return one + two + 0"),
            11,
            "return one + two + 0",
        ),
        (
            "return one + two",
            CODE.replace("    return one + two", "    if one:\n        return two + one"),
            12,
            "return two + one",
        ),
        (
            '    """\n    return one + two',
            CODE.replace("one + two", "plus(one, two)"),
            10,
            '"""\n    return plus(one, two)',
        ),
        ("return one + two", CODE.replace("return", "yield").replace("yield count", "return count"), 11, "one + two"),
    ],
    ids=["longer", "moved-and-turned", "of-two-lines", "cut-short"],
)
def test_a_lost_anchor_is_found_where_it_stands_now(sample, old, code, line, text):
    sample.mutate("add-wrong", old=old)
    sample.write("src/shop.py", code)

    (fault,) = anchors.check(sample.project)[1]
    (place,) = fault.places

    assert (place.file, place.line) == ("src/shop.py", line)
    assert text in place.text
    assert sample.project.read("src/shop.py").count(place.text) == 1
    assert list(fault.lines())[1] == (
        f'  src/shop.py:{place.line} is {place.alike:.0%} alike: "old": {json.dumps(place.text)}'
    )


@pytest.mark.guarantee("MUT-50")
def test_an_anchor_that_moved_to_another_file_is_found_there(sample):
    sample.mutate("add-wrong")
    sample.write("src/shop.py", "from sums import add\n")
    sample.write("src/sums.py", CODE)

    ((place,),) = [fault.places for fault in anchors.check(sample.project)[1]]

    assert (place.file, place.text, place.alike) == ("src/sums.py", "return one + two", 1.0)


@pytest.mark.guarantee("MUT-50")
def test_each_copy_of_an_ambiguous_anchor_is_made_longer_until_it_is_not(sample):
    sample.mutate("add-wrong", old="x = 1", new="x = 2")
    sample.write("src/shop.py", TEXT)

    ((one, two),) = [fault.places for fault in anchors.check(sample.project)[1]]

    assert (one.line, one.text) == (1, "def one():\n    x = 1")
    assert (two.line, two.text) == (6, "def two():\n    x = 1")


@pytest.mark.guarantee("MUT-50")
def test_nothing_is_suggested_that_is_not_alike():
    assert nearest("a.py", TEXT, "while not self.finished():") is None
    assert nearest("a.py", "", "x = 1") is None


@pytest.mark.guarantee("MUT-50")
def test_the_most_alike_of_several_is_suggested():
    place = nearest("a.py", "total = one * too\ntotal = one + two\n", "totals = one + two")

    assert place is not None
    assert place.text == "total = one + two"


@pytest.mark.guarantee("MUT-50")
def test_an_anchor_grows_from_words_to_lines_and_up_and_down():
    start = TEXT.index("x + 1")
    assert TEXT[slice(*unique(TEXT, start, start + 5))] == "x + 1"

    start = TEXT.index("= 1")
    assert TEXT[slice(*unique(TEXT, start, start + 3))] == "def one():\n    x = 1"
    assert unique("a\na\n", 0, 1) == (0, 3)


@pytest.mark.guarantee("MUT-50")
def test_the_later_edit_of_several_is_the_one_that_is_told(sample):
    edits = [
        {"file": "src/shop.py", "old": "one + two", "new": "one - two"},
        {"file": "src/shop.py", "old": "count >= LIMITS", "new": "count > LIMIT"},
    ]
    sample.mutate("both", file=None, old=None, new=None, edits=edits)

    (fault,) = anchors.check(sample.project)[1]

    assert (
        sample.root.joinpath(fault.source).read_text().splitlines()[fault.line - 1].strip().startswith('"old": "count')
    )
    assert [place.text for place in fault.places] == ["return count >= LIMIT"]


def test_nothing_is_wrong_with_the_mutations_of_this_project():
    total, faults = anchors.check(Project.load(Path(__file__).parent))

    assert [line for fault in faults for line in fault.lines()] == []
    assert total > 0
