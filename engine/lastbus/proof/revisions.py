"""Revisions: what git knows of a project's files. Everything is asked of git and nothing is changed."""

from __future__ import annotations

import subprocess

from lastbus.proof.config import Project
from lastbus.proof.errors import UsageError


def merge_base(project: Project, revision: str) -> str:
    """The commit that `revision` and the work tree have in common; `UsageError` if there is none.

    Keeps: MUT-46.
    """
    if revision.startswith("-"):
        raise UsageError(f"{revision} is no revision")
    found = _git(project, "merge-base", revision, "HEAD")
    if found is None:
        raise UsageError(
            f"git knows no commit that {revision} and HEAD have in common: fetch it, or correct the name"
            " (a shallow clone lacks history)"
        )
    return found.decode().strip()


def changed_files(project: Project, commit: str) -> set[str]:
    """The files that differ between `commit` and the work tree, new and untracked ones included; ignored ones are not.

    A file that moved is two: one that is gone and one that is new.
    Keeps: MUT-46.
    """
    differing = _git(project, "diff", "--name-only", "--no-renames", "--relative", "-z", commit, "--", ".")
    untracked = _git(project, "ls-files", "--others", "--exclude-standard", "-z", "--", ".")
    if differing is None or untracked is None:
        raise UsageError(f"git cannot compare {project.root} with {commit}")
    return {name for name in (differing + untracked).decode("utf-8", "surrogateescape").split("\0") if name}


def text_at(project: Project, revision: str, file: str) -> str | None:
    """The text of a file at a revision, or in the index if `revision` is empty; None if it is not there."""
    data = _git(project, "show", f"{revision}:./{file}")
    return None if data is None else data.decode("utf-8", "replace")


def last_commits(project: Project, file: str, count: int) -> list[str]:
    """The last commits that touched a file, newest first; none outside version control.

    Keeps: FRZ-03.
    """
    found = _git(project, "log", f"--max-count={count}", "--format=%h", "--", file)
    return (found or b"").decode().split()


def head(project: Project) -> str:
    """The commit that is checked out; empty outside version control."""
    return (_git(project, "rev-parse", "HEAD") or b"").decode().strip()


def _git(project: Project, *arguments: str) -> bytes | None:
    """What git prints; None if it fails or is not there."""
    try:
        done = subprocess.run(["git", *arguments], cwd=project.root, capture_output=True, check=False)
    except OSError:
        return None
    return None if done.returncode else done.stdout
