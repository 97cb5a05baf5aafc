"""The basis of a verdict: every file it rests on, as digests, so that whatever changed since can be named.

Keeps: MUT-16, MUT-41.

A verdict rests on the mutation, the files it changes, the killers' files, the conftests above them, what these import
from the tests and from the helpers that the project names, the plugins they name, and the data files beside the
killers. It does not rest on the rest of the code under test: whoever changes that runs the tests.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from lastbus.proof.config import Project
from lastbus.proof.mutation import Mutation

_COMMENT: Final = re.compile(r"#[^\n]*|\\\n")
_FROM: Final = re.compile(r"\bfrom\s+([.\w]+)\s+import\s*(\([^)]*\)|[^\n;]*)")
_IMPORT: Final = re.compile(r"\bimport\s+([^\n;(]+)")
_CALL: Final = re.compile(r"""\b(?:import_module|importorskip)\(\s*["']([.\w]+)["']""")
_PLUGINS: Final = re.compile(r"\bpytest_plugins\b[^=\n]*=\s*([\[(][^\])]*[\])]|[^\n]*)")
_STRING: Final = re.compile(r"""["']([.\w]+)["']""")
_NAME: Final = re.compile(r"[.\w]+")


class Tree:
    """The files of a project as they are now; each is read once, however many verdicts rest on it."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self._root = os.fspath(project.root)
        self._digests: dict[str, str] = {}
        self._same: set[tuple[str, str]] = set()
        self._leanings: dict[str, set[str]] = {}

    def digest(self, file: str) -> str:
        """A digest of one file, or of the data files below a folder that ends with a slash; empty if there is none.

        Keeps: MUT-16.
        """
        if file not in self._digests:
            data = self._data_below(file) if file.endswith("/") else self._bytes(file)
            self._digests[file] = "" if data is None else hashlib.sha256(data).hexdigest()[:32]
        return self._digests[file]

    def know(self, mutation: Mutation) -> None:
        """Take the text of a mutation that was read already, which is what will be put in, for that of its file."""
        self._digests[mutation.source] = hashlib.sha256(mutation.text.encode()).hexdigest()[:32]
        self._same.clear()

    def basis(self, mutation: Mutation) -> dict[str, str]:
        """Every file that the verdict on `mutation` rests on, with its digest.

        Keeps: MUT-16.
        """
        self.know(mutation)
        files = {*mutation.files, *self._test_files(mutation.killers)}
        return {file: self.digest(file) for file in (*sorted(files), mutation.source)}

    def changed(self, basis: Mapping[str, str]) -> str:
        """The first file that is not what `basis` says; empty if all are.

        Keeps: MUT-16.
        """
        if basis.items() <= self._same:  # Hundreds of verdicts rest on the same files: most have been compared.
            return ""
        file = next((file for file, digest in basis.items() if self.digest(file) != digest), "")
        if not file:
            self._same.update(basis.items())
        return file

    def _test_files(self, killers: Sequence[str]) -> set[str]:
        """The killers' files, every conftest that pytest may read for them, what these lean on, and data beside them.

        Keeps: MUT-16.
        """
        files = {killer.split("::")[0] for killer in killers}
        folders = {parent for file in files for parent in PurePosixPath(file).parents}
        first = files | {(folder / "conftest.py").as_posix() for folder in folders}
        beside = {f"{PurePosixPath(file).parent}/" for file in files} - {"./"}
        return first | self._leaned_on(first) | beside

    def _leaned_on(self, files: set[str]) -> set[str]:
        """The project's files that `files` import, and what those import, as far as they are tests or helpers.

        Keeps: MUT-41.
        """
        seen = set(files)
        waiting = list(files)
        while waiting:
            found = self._imports(waiting.pop()) - seen
            waiting += found
            seen |= found
        return seen

    def _imports(self, file: str) -> set[str]:
        """What one file leans on by itself: read once, because many killers lean on the same files.

        Keeps: MUT-41.
        """
        if file not in self._leanings:
            text = (self._bytes(file) or b"").decode("utf-8", "replace")
            found = {path for name in imported(text) for path in self._paths(name, file) if self._helps(path)}
            found |= {path for name in plugins(text) for path in self._paths(name, file)}
            self._leanings[file] = found
        return self._leanings[file]

    def _helps(self, file: str) -> bool:
        """Whether a file is for tests rather than under test.

        Keeps: MUT-41.
        """
        places = [PurePosixPath(place) for place in (*self.project.tests, *self.project.helpers)]
        return any(place == PurePosixPath(file) or place in PurePosixPath(file).parents for place in places)

    def _paths(self, name: str, file: str) -> Iterator[str]:
        """The files that importing `name` in `file` runs: a module and the packages around it."""
        folders = list(PurePosixPath(file).parents)
        dots = len(name) - len(name.lstrip("."))
        bases = folders[dots - 1 : dots] if dots else [*map(PurePosixPath, self.project.paths), *folders]
        parts = [part for part in name.split(".") if part]
        for base in bases:
            places = [base.joinpath(*parts[:length]) for length in range(1, len(parts) + 1)]
            modules = [place.with_name(f"{place.name}.py") for place in places]
            for path in (*modules, *(place / "__init__.py" for place in (base, *places))):
                if os.path.isfile(f"{self._root}/{path}"):
                    yield path.as_posix()

    def _bytes(self, file: str) -> bytes | None:
        try:
            with open(f"{self._root}/{file}", "rb") as opened:
                return opened.read()
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def _data_below(self, folder: str) -> bytes:
        """Names and contents of all files below `folder` that are neither Python nor caches."""
        base = self.project.root / folder
        files = sorted(
            Path(place, name)
            for place, _, names in os.walk(base)
            for name in names
            if not name.endswith((".py", ".pyc"))
        )
        return b"\0".join(part for path in files for part in (str(path.relative_to(base)).encode(), path.read_bytes()))


def imported(text: str) -> set[str]:
    """The names that a module imports, relative ones with their dots; rather one too many than one too few.

    Read by patterns, not by a parser: a file that is no Python at the moment has imports too.
    Keeps: MUT-41.
    """
    text = _COMMENT.sub(" ", text)
    names = set(_CALL.findall(text))
    for module, members in _FROM.findall(text):
        names.add(module)
        joint = "" if module.endswith(".") else "."
        names |= {f"{module}{joint}{member}" for member in _first_words(members.strip("()"))}
    for modules in _IMPORT.findall(_FROM.sub(" ", text)):
        names |= set(_first_words(modules))
    return names


def plugins(text: str) -> set[str]:
    """The modules that ``pytest_plugins`` names.

    Keeps: MUT-41.
    """
    return {name for found in _PLUGINS.findall(_COMMENT.sub(" ", text)) for name in _STRING.findall(found)}


def _first_words(listed: str) -> Iterator[str]:
    """`a` and `b` of ``a as c, b``."""
    for item in listed.split(","):
        word = _NAME.match(item.strip())
        if word:
            yield word[0]
