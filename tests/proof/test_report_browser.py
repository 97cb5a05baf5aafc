"""The page in a real browser: it fits, it can be searched and opened, and it complains of nothing.

Timing: the browser is waited for with a deadline, see `tests/proof/browser.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastbus.proof import report
from lastbus.proof.verdict import Verdict
from tests.proof.accounts import BREAKS_FULL, account_of, result
from tests.proof.browser import Browser, running
from tests.proof.sample import DOCS, shop

pytestmark = pytest.mark.slow
LONG = "a" + "_very_long_name" * 20
VISIBLE = "[...document.querySelectorAll('.guarantee')].filter(one => !one.hidden).map(one => one.id).join()"
OPEN = "[...document.querySelectorAll('.guarantee[open]')].map(one => one.id).join()"
CONTRAST = """(() => {
  const numbers = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((one) => one / 255)
    .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (one) => {
    for (let each = one; each; each = each.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(each).backgroundColor);
      if (getComputedStyle(each).backgroundImage !== 'none') return null;
      if (a === 1) return [r, g, b];
    }
    return null;
  };
  const weak = [];
  for (const one of document.querySelectorAll('main *, footer *')) {
    const says = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const back = says && one.checkVisibility() && ground(one);
    if (!back) continue;
    const [high, low] = [light(numbers(getComputedStyle(one).color)), light(back)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) weak.push(`${one.tagName}.${one.className} ${ratio.toFixed(2)}`);
  }
  return weak.join();
})()"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with a kill, a survivor with a very long line, a canary, and loose ends."""
    sample = shop(tmp_path_factory.mktemp("browser") / "shop")
    sample.write("docs/sum.md", f"# Sums\n{DOCS}\n### SUM-03 Hanging\n\n`{LONG}` changed nothing.\n")
    account = account_of(
        sample,
        result(sample, "add-wrong", Verdict.KILLED),
        result(sample, "full-late", Verdict.SURVIVED, LONG, **{**BREAKS_FULL, "new": f"> LIMIT  # {LONG}"}),
        result(sample, "bird", Verdict.SURVIVED, expect="survived", guarantees=[]),
    )
    report.write(sample.root.parent / "out", account)
    return sample.root.parent / "out" / "index.html"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for this module; skips, and says what to install, where there is none."""
    with running(tmp_path_factory.mktemp("chromium")) as one:
        yield one


@pytest.fixture(autouse=True)
def _without_complaint(browser: Browser) -> Iterator[None]:
    """A page that throws, warns, loads what it must not, or breaks its own policy fails its test."""
    browser.complaints.clear()
    yield
    browser.value("1")
    assert browser.complaints == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)], ids=["desktop", "phone"])
def test_nothing_is_wider_than_the_window_and_every_text_can_be_read(browser, made, width, height, dark):
    browser.open(made, width, height, dark)
    browser.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")

    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("innerWidth") == width
    assert browser.value(CONTRAST) == ""


@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_a_search_shows_what_it_found_and_a_click_opens_it(browser, made, width):
    browser.open(made, width, 844)

    browser.click("#q")
    browser.type("fullness")

    assert browser.value(VISIBLE) == "SUM-02"
    assert browser.value("document.getElementById('hits').textContent") == "1 of 3 guarantees"
    browser.click("#SUM-02 > summary")
    assert browser.value(OPEN) == "SUM-02"
    assert browser.value("document.querySelector('#SUM-02 .diff').checkVisibility()") is True


def test_words_are_found_where_they_begin_and_all_of_them_must_be_there(browser, made):
    browser.open(made, 1280, 900)
    browser.click("#q")

    browser.type("hang")
    assert browser.value(VISIBLE) == "SUM-03"
    browser.type(" sum-02")
    assert browser.value(VISIBLE) == ""
    assert browser.value("document.getElementById('none').checkVisibility()") is True


def test_the_keyboard_alone_is_enough(browser, made):
    browser.open(made, 1280, 900)

    browser.press("/", 191, "/")
    browser.type("sum-01")
    browser.press("Enter", 13, "\r")

    assert browser.value(OPEN) == "SUM-01"
    assert browser.value("document.activeElement.closest('.guarantee').id") == "SUM-01"
    browser.value("document.getElementById('q').focus()")
    browser.press("Escape", 27)
    assert browser.value(VISIBLE) == "SUM-01,SUM-02,SUM-03"


def test_a_status_can_be_chosen(browser, made):
    browser.open(made, 1280, 900)

    browser.click("input[value=pinned]")

    assert browser.value(VISIBLE) == "SUM-01"


def test_an_address_opens_its_guarantee_and_what_is_wrong_is_one_click_away(browser, made):
    browser.open(made, 1280, 900, fragment="#SUM-01")
    assert browser.value(OPEN) == "SUM-01"

    browser.click('.attention a[href="#m-full-late"]')

    assert browser.value(OPEN) == "SUM-01,SUM-02"


def test_every_control_has_a_name_and_headings_do_not_skip_a_level(browser, made):
    browser.open(made, 1280, 900)

    nameless = browser.value(
        "[...document.querySelectorAll('input, summary, a, [role=region], svg')].filter(one => !(one.labels?.length"
        " || one.getAttribute('aria-label') || one.textContent.trim())).length"
    )
    levels = browser.value("[...document.querySelectorAll('h1,h2,h3,h4')].map(one => +one.tagName[1])")
    assert nameless == 0
    assert levels[0] == 1
    assert max(after - before for before, after in itertools.pairwise(levels)) <= 1


def test_it_is_seen(browser, made, tmp_path):
    browser.open(made, 390, 844)

    browser.picture(tmp_path / "phone.png")

    assert (tmp_path / "phone.png").read_bytes()[:4] == b"\x89PNG"


def test_a_page_that_complains_is_noticed(browser, tmp_path):
    (tmp_path / "bad.html").write_text(
        "<meta http-equiv=Content-Security-Policy content=\"script-src 'unsafe-inline'\">"
        "<script>console.error('aloud'); undefined_function()</script>"
    )

    browser.open(tmp_path / "bad.html", 390, 844)

    assert len(browser.complaints) == 2
    browser.complaints.clear()
