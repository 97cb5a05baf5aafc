"""Reports: one replay and its ledger, told to people on a terminal, to programs and to browsers."""

from lastbus.proof.report.account import Account, diff
from lastbus.proof.report.folder import refuse_foreign, write
from lastbus.proof.report.github import tell
from lastbus.proof.report.plain import to_json
from lastbus.proof.report.terminal import ledger_line, red_lines, result_line, row_lines, summary_line

__all__ = [
    "Account",
    "diff",
    "ledger_line",
    "red_lines",
    "refuse_foreign",
    "result_line",
    "row_lines",
    "summary_line",
    "tell",
    "to_json",
    "write",
]
