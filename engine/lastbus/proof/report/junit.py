"""A report for CI servers: one JUnit test case per mutation.

Keeps: MUT-63. A verdict that is not the expected one is a failure where a test should have been sharper, and an
error where the run proves nothing either way.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # What is written here is only ever written.
from collections.abc import Sequence
from typing import Final

from lastbus.proof.mutation import Mutation
from lastbus.proof.replay import EARLIER, Result
from lastbus.proof.report.account import Account
from lastbus.proof.verdict import INVALID, OVERDUE

_NO_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot carry, not even escaped."""


def junit(account: Account) -> str:
    """The account as JUnit XML: a suite per folder of mutations; a red baseline is a suite of errors.

    Keeps: MUT-60, MUT-63.
    """
    root = ET.Element("testsuites", name=_text(account.name))
    red = account.outcome.baseline.red
    if red:
        suite = ET.SubElement(root, "testsuite", name="baseline")
        for killer, message in red.items():
            _case(suite, "baseline", killer, 0.0, ("error", "red baseline", message))
        _count(suite)
    for group in dict.fromkeys(result.mutation.group for result in account.outcome.results):
        suite = ET.SubElement(root, "testsuite", name=_text(group))
        for result in account.outcome.results:
            if result.mutation.group == group:
                case = _case(suite, group, result.mutation.id, result.seconds, _fault(result), result.mutation)
                if result.reused:
                    ET.SubElement(case, "system-out").text = EARLIER
        _count(suite)
    _add_up(root, list(root))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _fault(result: Result) -> tuple[str, str, str] | None:
    """Failure or error, the verdict, and why; None for what is as expected.

    Keeps: MUT-63.
    """
    if result.as_expected:
        return None
    word = "error" if result.verdict in INVALID | OVERDUE else "failure"
    expected = f", expected {result.mutation.expect}" if result.mutation.canary else ""
    return word, f"{result.verdict}{expected}", result.judgement.reason


def _case(
    suite: ET.Element,
    group: str,
    name: str,
    seconds: float,
    fault: tuple[str, str, str] | None,
    mutation: Mutation | None = None,
) -> ET.Element:
    case = ET.SubElement(suite, "testcase", classname=_text(group), name=_text(name), time=f"{seconds:.3f}")
    if mutation is not None:
        case.set("file", _text(mutation.source))
    if fault is not None:
        word, verdict, reason = fault
        first = (reason.strip().splitlines() or [""])[0]
        told = ET.SubElement(case, word, type=_text(verdict), message=_text(f"{verdict}: {first}"))
        told.text = _text("\n".join([reason.strip(), *_about(mutation)]))
    return case


def _about(mutation: Mutation | None) -> Sequence[str]:
    if mutation is None:
        return ()
    return (mutation.summary, f"{mutation.source} -> {', '.join(mutation.files)}", *mutation.killers)


def _count(suite: ET.Element) -> None:
    """Write into a suite how many cases it has, computed from them."""
    cases = list(suite)
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    suite.set("errors", str(sum(case.find("error") is not None for case in cases)))
    suite.set("skipped", "0")
    suite.set("time", f"{sum(float(case.get('time', 0)) for case in cases):.3f}")


def _add_up(root: ET.Element, suites: Sequence[ET.Element]) -> None:
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, 0)) for suite in suites)))
    root.set("time", f"{sum(float(suite.get('time', 0)) for suite in suites):.3f}")


def _text(text: str) -> str:
    """`text` without what XML cannot carry.

    Keeps: MUT-63.
    """
    return _NO_XML.sub("\ufffd", text)
