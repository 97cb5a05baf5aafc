"""The place of a run: where it imports from and writes to, and what may be inherited by it."""

from __future__ import annotations

import importlib
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from lastbus.proof.zygote import place


@pytest.fixture(autouse=True)
def _kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This process is the same again after the test."""
    for name in ("TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(random, "seed", int)
    monkeypatch.chdir(tmp_path)


def command(root: Path, bytecode: bool = False) -> place.Command:
    here = str(root)
    return {"cwd": here, "purge": [here], "paths": [str(root / "src")], "tmp": here, "bytecode": bytecode}


@pytest.mark.guarantee("MUT-17")
def test_programs_that_a_test_starts_import_the_copy(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/placed_sample.py").write_text("print('the copy')")
    place.use_copy(command(tmp_path))

    said = subprocess.check_output([sys.executable, "-S", "-c", "import placed_sample"], text=True)

    assert said == "the copy\n"


@pytest.mark.guarantee("MUT-17")
@pytest.mark.parametrize("bytecode", [False, True])
def test_a_mutated_run_writes_no_bytecode(tmp_path, bytecode):
    place.settle_in(command(tmp_path, bytecode))

    assert sys.dont_write_bytecode is not bytecode
    assert os.environ["PYTHONDONTWRITEBYTECODE"] == ("" if bytecode else "1")


@pytest.mark.guarantee("MUT-17")
def test_what_a_run_writes_for_itself_goes_to_a_folder_of_its_own(tmp_path):
    place.settle_in(command(tmp_path))

    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(tmp_path)


@pytest.mark.guarantee("MUT-17")
def test_the_files_of_the_project_that_were_imported_are_known(tmp_path, monkeypatch):
    (tmp_path / "placed_sample.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("placed_sample")

    assert place.imported_below(str(tmp_path)) == {str(tmp_path / "placed_sample.py")}
    assert place.imported_below(str(tmp_path)[:-1]) == frozenset()
    del sys.modules["placed_sample"]


@pytest.mark.guarantee("MUT-22")
def test_modules_are_imported_ahead_in_the_order_in_which_they_were_imported():
    names = place.importable([])

    assert {"json", "_asyncio"} <= set(names)
    assert names == [name for name in sys.modules if name in set(names)]


@pytest.mark.guarantee("MUT-22")
def test_modules_of_the_project_are_not_imported_ahead(tmp_path, monkeypatch):
    (tmp_path / "placed_sample.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("placed_sample")

    assert "placed_sample" in place.importable([])
    assert "placed_sample" not in place.importable([str(tmp_path)])
    del sys.modules["placed_sample"]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads that this process seems to have: this one."""
    threads = [threading.current_thread()]
    monkeypatch.setattr(threading, "enumerate", lambda: threads)
    return threads


@pytest.mark.guarantee("MUT-22")
def test_a_process_with_a_thread_is_not_forked(alone):
    alone.append(threading.Thread(name="till"))

    assert place.unfit() == "a thread runs: till"


@pytest.mark.guarantee("MUT-22")
def test_a_process_with_a_socket_is_not_forked(alone, monkeypatch):
    near, far = os.pipe()
    opened = socket.socket()
    told = {}
    for number in (near, opened.fileno()):
        monkeypatch.setattr(os, "listdir", lambda _, number=number: [str(number)])
        told[number] = place.unfit()
    opened.close()
    os.close(near)
    os.close(far)

    assert list(told.values()) == ["", "a socket is open"]
