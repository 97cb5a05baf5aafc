"""Errors of the proof: each says what is wrong, where, and what to do next."""

from __future__ import annotations


class ProofError(Exception):
    """The proof cannot go on. `exit_code` is what the command line returns for it."""

    exit_code = 2


class UsageError(ProofError):
    """You asked for something that does not exist here; nothing was run."""


class MutationFileError(ProofError):
    """A mutation file is malformed. `file`, `key` and `line` say where.

    Keeps: MUT-01, MUT-20.
    """

    exit_code = 4

    def __init__(self, file: str, key: str, line: int, fault: str) -> None:
        self.file = file
        self.key = key
        self.line = line
        self.fault = fault
        super().__init__(f"{file}:{line}: {key}: {fault}")


class RunnerError(ProofError):
    """The process that runs the tests could not be started or spoken to."""
