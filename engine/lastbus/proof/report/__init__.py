"""Reports: one replay and its ledger, told to people on a terminal, to programs and to browsers.

The names below are resolved on first use: a line on a terminal needs nothing of what a page is made of.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastbus.proof.report.account import Account as Account
    from lastbus.proof.report.account import diff as diff
    from lastbus.proof.report.folder import refuse_foreign as refuse_foreign
    from lastbus.proof.report.folder import write as write
    from lastbus.proof.report.github import tell as tell
    from lastbus.proof.report.plain import to_json as to_json
    from lastbus.proof.report.terminal import ledger_line as ledger_line
    from lastbus.proof.report.terminal import red_lines as red_lines
    from lastbus.proof.report.terminal import result_line as result_line
    from lastbus.proof.report.terminal import row_lines as row_lines
    from lastbus.proof.report.terminal import summary_line as summary_line

_HOMES = {
    "Account": "account",
    "diff": "account",
    "ledger_line": "terminal",
    "red_lines": "terminal",
    "refuse_foreign": "folder",
    "result_line": "terminal",
    "row_lines": "terminal",
    "summary_line": "terminal",
    "tell": "github",
    "to_json": "plain",
    "write": "folder",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
