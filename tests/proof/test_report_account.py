"""The headline of an account: good only if everything is."""

from __future__ import annotations

import pytest

from lastbus.proof.verdict import Verdict
from tests.proof.accounts import BREAKS_FULL, account_of, proven, result
from tests.proof.sample import ADD, DOCS


@pytest.mark.guarantee("MUT-60")
def test_a_whole_replay_with_everything_pinned_is_proven(sample):
    tone, said = proven(sample).headline

    assert (tone, said) == ("good", "Proven: every guarantee is pinned or declared (2 guarantees)")


@pytest.mark.guarantee("MUT-60")
def test_a_red_baseline_is_the_headline(sample):
    account = account_of(sample, red={ADD: "assert 5 == 6"})

    assert account.headline == ("bad", "The baseline is red: 1 killer failed without any mutation")


@pytest.mark.guarantee("MUT-60")
def test_one_survivor_is_the_headline(sample):
    killed = result(sample, "full-late", Verdict.KILLED, **BREAKS_FULL)
    account = account_of(sample, killed, result(sample, "add-wrong", Verdict.SURVIVED))

    assert account.headline == ("bad", "1 mutation met something else than expected")


@pytest.mark.guarantee("MUT-60")
def test_a_dead_canary_is_the_headline(sample):
    account = account_of(sample, result(sample, "bird", Verdict.KILLED, expect="survived"))

    assert account.headline[0] == "bad"


@pytest.mark.guarantee("MUT-60")
def test_a_part_of_the_mutations_proves_nothing_as_a_whole(sample):
    left_out = sample.mutate("full-late", **BREAKS_FULL)
    account = account_of(sample, result(sample, "add-wrong", Verdict.KILLED))

    assert left_out.id not in {each.mutation.id for each in account.outcome.results}
    assert account.headline == ("partial", "As expected, as far as replayed: 1 mutation")
    assert account.loose_ends == []


@pytest.mark.guarantee("MUT-60")
def test_an_unpinned_guarantee_is_the_headline_of_a_whole_replay(sample):
    account = account_of(sample, result(sample, "add-wrong", Verdict.KILLED))

    assert account.headline == ("bad", "Every verdict is as expected, but the ledger is not: 1 fault")
    assert account.loose_ends == ["SUM-02 is unpinned: no mutation breaks it: add a file under the mutations folder"]


@pytest.mark.guarantee("MUT-60")
def test_a_frozen_body_that_changed_is_the_headline(sample):
    sample.write(
        "mutations/frozen.json",
        '[{"file": "src/shop.py", "name": "add", "bytes": 1, "lines": 1, "sha256": "", "why": "money"}]',
    )

    account = proven(sample)

    assert account.headline[0] == "bad"
    assert "add is frozen (money) but changed" in account.loose_ends[0]


@pytest.mark.guarantee("MUT-60")
def test_an_id_that_nothing_states_is_the_headline_even_of_a_part(sample):
    sample.mutate("full-late", **BREAKS_FULL)
    sample.write("docs/sum.md", DOCS.replace("SUM-02", "SUM-03"))

    account = account_of(sample, result(sample, "add-wrong", Verdict.KILLED))

    assert account.headline[0] == "bad"


def test_a_project_is_called_what_it_calls_itself(sample):
    assert proven(sample).name == "shop"
    sample.write("pyproject.toml", f'[project]\nname = "corner-shop"\n{sample.project.read("pyproject.toml")}')
    assert proven(sample).name == "corner-shop"
