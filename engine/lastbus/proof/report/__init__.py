"""Reports: one replay and its ledger, told to people on a terminal, to programs and to browsers."""

from lastbus.proof.report.folder import diff, write_evidence
from lastbus.proof.report.plain import to_json
from lastbus.proof.report.terminal import ledger_line, red_lines, result_line, row_lines, summary_line

__all__ = [
    "diff",
    "ledger_line",
    "red_lines",
    "result_line",
    "row_lines",
    "summary_line",
    "to_json",
    "write_evidence",
]
