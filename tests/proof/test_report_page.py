"""The report as one page: all of it there, all of it escaped, nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from lastbus.proof.report.page import page, prose
from lastbus.proof.verdict import Verdict
from tests.proof.accounts import BREAKS_FULL, account_of, proven, result
from tests.proof.sample import ADD, CODE, DOCS

NASTY = "</script><img src=x onerror=alert(1)>\"'"


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and the text within `script` and `style`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, str] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_data(self, data: str) -> None:
        if self._open in ("script", "style"):
            self.inside[self._open] = self.inside.get(self._open, "") + data

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def ids(self) -> list[str]:
        return [attrs["id"] or "" for _, attrs in self.tags if "id" in attrs]


@pytest.mark.guarantee("MUT-66")
def test_the_page_shows_a_guarantee_with_its_four_places_and_its_verdict(sample):
    text = page(proven(sample))

    card = text[text.index('id="SUM-01"') : text.index('id="SUM-02"')]
    for part in (
        "<code>add</code> gives the sum.",
        "docs/sum.md:1",
        "src/shop.py:6 add",
        ADD,
        '<span class="badge good">killed</span>',
        '<span class="removed">-    return one + two',
        '<span class="added">+    return one - two',
        "mutations/sum/add-wrong.json",
    ):
        assert part in card


@pytest.mark.guarantee("MUT-66")
def test_guarantees_stand_under_the_titles_of_their_documents(sample):
    sample.write("docs/sum.md", f"# Sums and what they cost\n{DOCS}")

    text = page(proven(sample))

    assert ">Sums and what they cost</h3>" in text
    assert text.index("</h3>") < text.index('id="SUM-01"')


@pytest.mark.guarantee("MUT-66")
def test_a_document_with_something_unpinned_stands_out_in_the_contents(sample):
    loose = page(account_of(sample, result(sample, "add-wrong", Verdict.KILLED)))

    assert '<span class="count warn">2</span>' in loose
    assert "count warn" not in page(proven(sample))


@pytest.mark.guarantee("MUT-66")
def test_a_verdict_says_how_it_was_come_by(sample):
    now = result(sample, "add-wrong", Verdict.KILLED)
    differed = replace(now, disagreement="warm: survived, isolated: killed")

    assert "0.25 s on Python 3.11.7<" in page(account_of(sample, now))
    assert "; two looks differed (warm: survived, isolated: killed)<" in page(account_of(sample, differed))
    assert "an earlier verdict that still holds<" in page(account_of(sample, replace(now, reused=True)))


@pytest.mark.guarantee("MUT-66")
def test_what_was_not_replayed_now_shows_its_earlier_verdict(sample):
    proven(sample)
    text = page(account_of(sample, result(sample, "add-wrong", Verdict.KILLED)))

    card = text[text.index('id="SUM-02"') :]
    assert "an earlier replay on Python 3.11.7<" in card
    assert '<span class="badge good">killed</span>' in card
    sample.write("src/shop.py", CODE + "\n# changed")
    stale = page(account_of(sample, result(sample, "add-wrong", Verdict.KILLED)))
    assert "an earlier replay on Python 3.11.7; src/shop.py has changed since" in stale


@pytest.mark.guarantee("MUT-66")
def test_what_was_never_replayed_says_so(sample):
    sample.mutate("full-late", **BREAKS_FULL)

    text = page(account_of(sample, result(sample, "add-wrong", Verdict.KILLED)))

    assert '<span class="badge dim">never replayed</span>' in text


@pytest.mark.guarantee("MUT-60", "MUT-66")
def test_what_is_not_as_expected_is_on_top_and_linked(sample):
    text = page(account_of(sample, result(sample, "add-wrong", Verdict.HANG)))

    assert "Needs attention" in text
    assert '<a href="#m-add-wrong">' in text
    assert "m-add-wrong" in Tags(text).ids()
    assert "Needs attention" not in page(proven(sample))


@pytest.mark.guarantee("MUT-66")
def test_canaries_have_a_chapter_of_their_own(sample):
    text = page(proven(sample))

    assert 'id="m-bird"' in text[text.index('id="canaries"') :]


@pytest.mark.guarantee("MUT-66")
def test_no_id_stands_twice(sample):
    both = result(sample, "both", Verdict.KILLED, guarantees=["SUM-01", "SUM-02"])

    ids = Tags(page(account_of(sample, both))).ids()

    assert len(ids) == len(set(ids))


@pytest.mark.guarantee("MUT-66")
def test_the_page_loads_nothing(sample):
    text = page(proven(sample))

    tags = Tags(text).tags
    assert [attrs for tag, attrs in tags if "src" in attrs] == []
    assert [attrs["href"] for tag, attrs in tags if tag == "link"] == ["data:,"]
    assert not re.search(r"(https?:)?//[\w.]+\.\w", Tags(text).inside["style"])
    assert {tag for tag, _ in tags}.isdisjoint({"iframe", "object", "embed", "img", "base"})


@pytest.mark.guarantee("MUT-67")
def test_every_text_is_escaped(sample):
    sample.write("docs/sum.md", f"# {NASTY}\n\n### SUM-01 {NASTY}\n\n{NASTY}\n\n### SUM-02 x\n\nDeclared: {NASTY}\n")
    account = account_of(
        sample,
        result(sample, "one", Verdict.SURVIVED, NASTY, summary=NASTY, new=f"return {NASTY!r}"),
        red={f"tests/{NASTY}": NASTY},
    )

    text = page(account)

    tags = Tags(text).tags
    assert [tag for tag, attrs in tags if tag == "img" or any(name.startswith("on") for name in attrs)] == []
    assert [tag for tag, _ in tags].count("script") == 1
    assert text.count("&lt;/script&gt;&lt;img") >= 6


@pytest.mark.guarantee("MUT-67")
def test_the_policy_lets_only_this_script_and_this_style_in(sample):
    tags = Tags(page(proven(sample)))

    policy = next(attrs["content"] for tag, attrs in tags.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in (policy or "").split(";"))
    assert rules["default-src"] == "'none'"
    for kind in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(tags.inside[kind].encode()).digest()).decode()
        assert rules[f"{kind}-src"] == f"'sha256-{digest}'"
    assert [attrs for _, attrs in tags.tags if "style" in attrs] == []


@pytest.mark.guarantee("MUT-67")
def test_a_sentence_is_escaped_before_its_code_is_set():
    assert prose("`<b>` & `x`") == "<code>&lt;b&gt;</code> &amp; <code>x</code>"


@pytest.mark.guarantee("MUT-60")
def test_the_bar_is_as_wide_as_its_parts(sample):
    account = account_of(
        sample,
        result(sample, "one", Verdict.KILLED),
        result(sample, "two", Verdict.SURVIVED),
        result(sample, "three", Verdict.SURVIVED),
        result(sample, "four", Verdict.HANG),
    )

    rects = [attrs for tag, attrs in Tags(page(account)).tags if tag == "rect"]

    assert [(one["class"], one["x"], one["width"]) for one in rects] == [
        ("good", "0.0", "250.0"),
        ("odd", "250.0", "250.0"),
        ("bad", "500.0", "500.0"),
    ]
    assert sum(float(one["width"] or 0) for one in rects) == 1000.0


def test_a_page_without_a_single_result_can_be_made(sample):
    assert "The baseline is red" in page(account_of(sample, red={ADD: ""}))
