"""A verdict: what one run of the killers says about one mutation.

Keeps: MUT-04, MUT-05, MUT-10.

Pure functions over report facts; nothing here starts a process or reads a clock.
The rule is narrow on purpose. Only one thing is a kill: a mapped test, which
carries one of the mutation's guarantees, failed in its call phase. A crash, a
hang, an error before the test began or the failure of some other test prove
nothing about the guarantee, so each has a word of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal


class Verdict(str, Enum):
    """The fifteen words a replay may say about a mutation."""

    KILLED = "killed"
    """A mapped test that carries one of the mutation's guarantees failed in its call phase."""
    SURVIVED = "survived"
    """Every killer ran and passed, twice."""
    ELSEWHERE = "elsewhere"
    """Something failed, but no killer that carries one of the mutation's guarantees."""
    SUBFAILED_ONLY = "subfailed-only"
    """Only subtests failed; the killer itself has no failure of its own."""
    FLAKY = "flaky"
    """Two runs disagree, or a killer is not stable on the unmutated tree."""
    HANG = "hang"
    """A phase passed its limit, and alone with three times the limit it passed it again."""
    TIMEOUT = "timeout"
    """A phase passed its limit; alone it did finish, but later than the limit."""
    IMPORT_ERROR = "import-error"
    """A module or a conftest could not be imported, so no test ran."""
    COLLECT_ERROR = "collect-error"
    """The modules were imported, but the tests could not be collected."""
    SETUP_ERROR = "setup-error"
    """A killer broke in its setup or teardown and did not fail by itself."""
    NOT_RUN = "not-run"
    """A killer gave no result: missing, ambiguous, skipped, or its process died."""
    ANCHOR_LOST = "anchor-lost"
    """The text to replace is not in the file."""
    ANCHOR_AMBIGUOUS = "anchor-ambiguous"
    """The text to replace is in the file more than once."""
    NO_OP = "no-op"
    """The replacement changes no code, only comments, docstrings or layout."""
    UNPARSABLE = "unparsable"
    """The mutated file is not Python."""

    def __str__(self) -> str:
        return self.value


How = Literal["warm", "fresh", "isolated"]
"""Where a run happens: in a fork that has imported and collected everything, in one that has not, in a new process."""

INVALID = frozenset(
    {
        Verdict.ANCHOR_LOST,
        Verdict.ANCHOR_AMBIGUOUS,
        Verdict.NO_OP,
        Verdict.UNPARSABLE,
        Verdict.NOT_RUN,
        Verdict.IMPORT_ERROR,
        Verdict.COLLECT_ERROR,
        Verdict.SETUP_ERROR,
    }
)
OVERDUE = frozenset({Verdict.HANG, Verdict.TIMEOUT})


@dataclass(frozen=True)
class Report:
    """One phase of one test, as pytest reported it. `subtest` marks a report that is not the test's own."""

    test: str
    when: str
    outcome: str
    subtest: bool = False
    message: str = ""


@dataclass(frozen=True)
class Broken:
    """Something that kept tests from being collected: `kind` is `import` or `collect`."""

    kind: str
    where: str
    message: str = ""


@dataclass(frozen=True)
class Run:
    """Facts of one run. `late` says that a phase passed its limit, whether or not it then finished.

    `log` is the end of what pytest and the tests printed: for people, never for the verdict. `how` says where it ran.
    """

    reports: Sequence[Report] = ()
    broken: Sequence[Broken] = ()
    ended: Literal["finished", "stopped", "died"] = "finished"
    late: bool = False
    doing: str = ""
    seconds: float = 0.0
    log: str = ""
    how: How = "fresh"


@dataclass(frozen=True)
class Judgement:
    """A verdict, why, and which killers failed with which ids."""

    verdict: Verdict
    reason: str = ""
    killed_by: Mapping[str, tuple[str, ...]] | None = None


def judge(
    run: Run,
    killers: Sequence[str],
    guarantees: Collection[str],
    carries: Mapping[str, Collection[str]],
) -> Judgement:
    """What `run` says. `carries` tells which guarantee ids each test is marked with.

    A mutation without guarantees (a canary) counts any failed killer.
    Keeps: MUT-05.
    """
    if run.ended == "stopped":
        return Judgement(Verdict.TIMEOUT, f"over its limit in {run.doing}")
    killed_by = _kills(run, killers, guarantees, carries)
    if killed_by:
        return Judgement(Verdict.KILLED, _first_message(run, killed_by), killed_by)
    return _without_kill(run, killers)


def _kills(
    run: Run, killers: Sequence[str], guarantees: Collection[str], carries: Mapping[str, Collection[str]]
) -> dict[str, tuple[str, ...]]:
    """The killers that failed by themselves in their call phase, with all the ids they carry.

    Keeps: MUT-04, MUT-10.
    """
    kills: dict[str, tuple[str, ...]] = {}
    for report in run.reports:
        carried = carries.get(report.test, ())
        mapped = report.test in killers and (not guarantees or not set(carried).isdisjoint(guarantees))
        if mapped and _failed(report) and not report.subtest:
            kills[report.test] = tuple(sorted(carried))
    return kills


def _without_kill(run: Run, killers: Sequence[str]) -> Judgement:
    """Why a run without a kill is not a kill: the earliest obstacle wins.

    Keeps: MUT-05.
    """
    for broken in run.broken:
        word = Verdict.IMPORT_ERROR if broken.kind == "import" else Verdict.COLLECT_ERROR
        return Judgement(word, f"{broken.where}: {broken.message}")
    if run.ended == "died":
        return Judgement(Verdict.NOT_RUN, f"the process died in {run.doing}")
    for report in run.reports:
        if report.when != "call" and report.outcome == "failed":
            return Judgement(Verdict.SETUP_ERROR, f"{report.test} in {report.when}: {report.message}")
    failed = [report for report in run.reports if _failed(report)]
    alone = [report for report in failed if not report.subtest]
    if alone:
        return Judgement(Verdict.ELSEWHERE, f"failed, but carries none of the guarantees: {alone[0].test}")
    if failed:
        return Judgement(Verdict.SUBFAILED_ONLY, f"only subtests of {failed[0].test} failed")
    return _passed(run, killers)


def _passed(run: Run, killers: Sequence[str]) -> Judgement:
    passed = {report.test for report in run.reports if report.when == "call" and report.outcome == "passed"}
    silent = [killer for killer in killers if killer not in passed]
    if silent:
        return Judgement(Verdict.NOT_RUN, f"no result from {silent[0]} (missing or skipped)")
    return Judgement(Verdict.SURVIVED, "every killer passed")


def _failed(report: Report) -> bool:
    """Whether a test failed in its call phase.

    Keeps: MUT-04.
    """
    return report.when == "call" and report.outcome == "failed"


def _first_message(run: Run, killed_by: Collection[str]) -> str:
    for report in run.reports:
        if report.test in killed_by and _failed(report):
            return report.message
    return ""


def wants_second_run(judgement: Judgement, expect: str) -> bool:
    """Whether a fresh run must agree before this is reported: everything but a kill and an expected survivor.

    Keeps: MUT-14.
    """
    if judgement.verdict is Verdict.KILLED:
        return False
    return not (judgement.verdict is Verdict.SURVIVED and expect == "survived")


def settle(first: Judgement, second: Judgement, second_was_late: bool) -> Judgement:
    """The verdict after a second run in a fresh process.

    A first run over its limit proves nothing about the mutation, so the second one, alone and
    with a longer limit, decides: `hang` if it had to be stopped too, `timeout` if it finished late,
    its own verdict if it finished in time. Otherwise both runs must agree, or the word is `flaky`.
    Keeps: MUT-05, MUT-14.
    """
    if first.verdict is Verdict.TIMEOUT:
        if second.verdict is Verdict.TIMEOUT:
            return Judgement(Verdict.HANG, f"{second.reason}, again when run alone with a longer limit")
        if second_was_late:
            return Judgement(Verdict.TIMEOUT, f"{first.reason}; alone it ended late as {second.verdict}")
        return second
    if first.verdict is second.verdict:
        return second
    return flaky([first, second])


def agreed(firsts: Sequence[Judgement], isolated: Sequence[Judgement]) -> Judgement:
    """The verdict when a first run and one in isolation differed, and both were repeated.

    If each place agrees with itself, the isolated verdict holds: there nothing was imported or swapped ahead.
    If one does not, the word is `flaky`.
    Keeps: MUT-14, MUT-27.
    """
    if len({one.verdict for one in firsts}) == len({one.verdict for one in isolated}) == 1:
        return isolated[-1]
    return flaky([*firsts, *isolated])


def flaky(looks: Sequence[Judgement]) -> Judgement:
    """The word for looks that differ, with what each of them said."""
    first, *others = (str(one.verdict) for one in looks)
    return Judgement(Verdict.FLAKY, f"first {first}, then {', '.join(others)}: {looks[-1].reason}")


def exit_code(verdicts: Collection[tuple[Verdict, str]]) -> int:
    """The exit code for (verdict, expected) pairs: 0 as expected · 4 invalid · 5 overdue · 1 the rest.

    Keeps: MUT-18, MUT-20.
    """
    wrong = {verdict for verdict, expected in verdicts if verdict.value != expected}
    if wrong & INVALID:
        return 4
    if wrong & OVERDUE:
        return 5
    return 1 if wrong else 0
