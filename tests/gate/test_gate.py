"""The gate finds what is there, makes what is missing, and says plainly what it cannot do."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from scripts import gate
from scripts.gate import Interpreter, Tally, Unable

NOWHERE = {"HOME": "/nonexistent", "PATH": ""}
ALL = [Interpreter(version, Path("/usr/bin/python" + version)) for version in gate.WANTED]


def fake_python(
    path: Path, says: str = "CPython 3.12", *, new: bool = True, able: bool = True, pip: bool = True
) -> Path:
    """A program that answers the gate's questions as an interpreter would."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f"""#!/bin/sh
case "$3" in
  *implementation*) echo '{says}' ;;
  *version_info*) echo {new} ;;
  *venv*) {"true" if able else "exit 1"} ;;
  *pip*) {"true" if pip else "exit 1"} ;;
esac
"""
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No interpreter of this machine is beside the running one."""
    monkeypatch.setattr(sys, "base_prefix", "/nonexistent")
    return tmp_path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("one")
    return tmp_path


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What the gate would have run; everything succeeds, and ``venv`` leaves an environment that works."""
    ran: list[list[str]] = []

    def run(command: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
        ran.append(list(command))
        if "venv" in command:
            fake_python(Path(command[-1]) / "bin" / "python")
        return 0

    monkeypatch.setattr(gate, "run", run)
    monkeypatch.setattr("shutil.which", lambda name: None)
    return ran


# Interpreters


def test_a_versioned_name_on_path_is_found(elsewhere: Path) -> None:
    python = fake_python(elsewhere / "python3.12")
    assert gate.find_interpreters({**NOWHERE, "PATH": str(elsewhere)}) == [Interpreter("3.12", python)]


def test_a_shim_that_cannot_run_is_passed_over_for_pyenvs_own(elsewhere: Path) -> None:
    shim = elsewhere / "shims" / "python3.10"
    fake_python(shim).write_text("#!/bin/sh\nexit 127\n")
    real = fake_python(elsewhere / "versions" / "3.10.13" / "bin" / "python3.10", "CPython 3.10")
    environ = {**NOWHERE, "PATH": str(shim.parent), "PYENV_ROOT": str(elsewhere)}
    assert gate.find_interpreters(environ) == [Interpreter("3.10", real)]


def test_the_newest_patch_of_pyenv_counts_and_development_builds_do_not(tmp_path: Path) -> None:
    for name in ("3.13.2", "3.13.10", "3.13-dev", "3.13.11t", "3.12.9", "pypy3.13-7.3"):
        (tmp_path / "versions" / name).mkdir(parents=True)
    found = gate.pyenv_folders("3.13", {"PYENV_ROOT": str(tmp_path)})
    assert [folder.name for folder in found] == ["3.13.10", "3.13.2"]


def test_uvs_interpreters_are_found_where_uv_keeps_them(elsewhere: Path) -> None:
    folder = elsewhere / ".local/share/uv/python/cpython-3.11.9-linux-x86_64-gnu"
    python = fake_python(folder / "bin" / "python3.11", "CPython 3.11")
    assert gate.find_interpreters({"HOME": str(elsewhere), "PATH": ""}) == [Interpreter("3.11", python)]


def test_another_implementation_or_version_does_not_pass_for_cpython(elsewhere: Path) -> None:
    fake_python(elsewhere / "python3.12", "PyPy 3.12")
    fake_python(elsewhere / "python3.11", "CPython 3.9")
    assert gate.find_interpreters({**NOWHERE, "PATH": str(elsewhere)}) == []


def test_a_missing_interpreter_is_named_and_the_rest_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    gate.report_missing(ALL[1:], {})
    said = capsys.readouterr().out
    assert "CPython 3.10 not found" in said
    assert "testing on 3.11, 3.12, 3.13 only" in said


def test_a_missing_interpreter_fails_in_ci() -> None:
    with pytest.raises(Unable, match=r"CPython 3\.13 not found.*pyenv install 3\.13"):
        gate.report_missing(ALL[:3], {"CI": "true"})


def test_without_any_interpreter_there_is_nothing_to_go_on_with() -> None:
    with pytest.raises(Unable, match=r"3\.10, 3\.11, 3\.12, 3\.13"):
        gate.report_missing([], {})


def test_the_four_interpreters_are_nothing_to_report(capsys: pytest.CaptureFixture[str]) -> None:
    gate.report_missing(ALL, {"CI": "true"})
    assert capsys.readouterr().out == ""


def test_inner_commands_find_the_interpreters_first_and_download_none(tmp_path: Path) -> None:
    seen = gate.surroundings(tmp_path, [Interpreter("3.10", Path("/a/python3.10"))], {"PATH": "/z"})
    assert seen["PATH"] == f"/a:{tmp_path}/bin:/z"
    assert seen["UV_PYTHON_DOWNLOADS"] == "never"


# The virtual environment


def test_a_fresh_checkout_gets_an_environment_with_the_project_in_it(project: Path, commands: list[list[str]]) -> None:
    venv = gate.ready_venv(project, [])
    assert [" ".join(command) for command in commands] == [
        f"{sys.executable} -m venv {venv}",
        f"{venv}/bin/python -m pip install --disable-pip-version-check --quiet uv",
        f"{venv}/bin/python -m pip install --disable-pip-version-check --quiet --editable {project}[dev]",
    ]


def test_the_second_time_nothing_is_left_to_do(project: Path, commands: list[list[str]]) -> None:
    gate.ready_venv(project, [])
    commands.clear()
    gate.ready_venv(project, [])
    assert commands == []


def test_a_changed_pyproject_is_installed_again_into_the_same_environment(
    project: Path, commands: list[list[str]]
) -> None:
    gate.ready_venv(project, [])
    commands.clear()
    (project / "pyproject.toml").write_text("two")
    gate.ready_venv(project, [])
    assert commands[-1][-1] == f"{project}[dev]"
    assert not any("venv" in command for command in commands)


@pytest.mark.parametrize("left", [{"new": False}, {"pip": False}])
def test_a_half_made_environment_is_made_again(project: Path, commands: list[list[str]], left: dict[str, bool]) -> None:
    fake_python(project / ".venv" / "bin" / "python", **left)
    (project / ".venv" / "debris").touch()
    venv = gate.ready_venv(project, [])
    assert "venv" in commands[0]
    assert not (venv / "debris").exists()


def test_an_interrupted_installation_is_done_again(
    project: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    gate.ready_venv(project, [])
    (project / "pyproject.toml").write_text("two")
    with monkeypatch.context() as patch:
        patch.setattr(gate, "install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gate.ready_venv(project, [])
    (project / "pyproject.toml").write_text("one")
    commands.clear()
    gate.ready_venv(project, [])
    assert commands[-1][-1] == f"{project}[dev]"
    assert not any("venv" in command for command in commands)


def interrupted(root: Path, venv: Path) -> str:
    raise KeyboardInterrupt


def test_uv_is_preferred_where_it_works(
    project: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "find_uv", lambda venv: "/bin/uv")
    venv = gate.ready_venv(project, [])
    assert commands[-1][0] == "/bin/uv"
    assert "TOX_DISABLED_EXTERNAL_PLUGINS" not in gate.surroundings(venv, environ={})


def test_pip_steps_in_when_uv_cannot_install(
    project: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "find_uv", lambda venv: "/bin/uv")
    monkeypatch.setattr(gate, "run", lambda command, environ=None: int(command[0] == "/bin/uv"))
    fake_python(project / ".venv" / "bin" / "python")
    venv = gate.ready_venv(project, [])
    assert gate.surroundings(venv)["TOX_DISABLED_EXTERNAL_PLUGINS"] == "tox-uv"


def test_a_failed_installation_leaves_no_stamp(
    project: Path, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_python(project / ".venv" / "bin" / "python")
    monkeypatch.setattr(gate, "run", lambda command, environ=None: 1)
    with pytest.raises(Unable, match="installation failed"):
        gate.ready_venv(project, [])
    assert gate.read_stamp(project / ".venv") == []


def test_an_old_python_looks_for_a_newer_one(tmp_path: Path) -> None:
    old = fake_python(tmp_path / "old", new=False)
    newer = fake_python(tmp_path / "newer")
    assert gate.choose_host([old, newer], has_uv=False) == (newer, True)


def test_an_old_python_alone_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(Unable, match=r"no CPython 3\.10 or newer was found"):
        gate.choose_host([fake_python(tmp_path / "old", new=False)], has_uv=True)


def test_a_python_without_venv_leaves_it_to_uv_or_says_what_to_install(tmp_path: Path) -> None:
    bare = fake_python(tmp_path / "bare", able=False)
    assert gate.choose_host([bare], has_uv=True) == (bare, False)
    with pytest.raises(Unable, match="apt install python3-venv"):
        gate.choose_host([bare], has_uv=False)


# Running


def test_the_status_of_the_inner_command_is_passed_on() -> None:
    assert gate.run(["sh", "-c", "exit 7"]) == 7
    assert gate.run(["sh", "-c", "kill -KILL $$"]) == 128 + signal.SIGKILL


def test_a_request_to_end_reaches_the_inner_command_as_an_interrupt(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    os.mkfifo(ready)

    def tell() -> None:
        ready.read_text()
        os.kill(os.getpid(), signal.SIGTERM)

    teller = threading.Thread(target=tell)
    teller.start()
    status = gate.run(["sh", "-c", f"trap 'exit 9' INT; echo > {ready}; while :; do sleep 0.01; done"])
    teller.join()
    assert status == 9


@pytest.mark.parametrize("wrong", [[], ["tset"], ["--verbose", "test"]])
def test_a_usage_error_exits_2_and_shows_the_usage(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert gate.main(wrong) == 2
    assert "usage: python3 scripts/gate.py" in capsys.readouterr().err


def test_help_shows_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate.main(["--help"]) == 0
    assert "python3 scripts/gate.py test -e py312 -- tests/close" in capsys.readouterr().out


def test_a_lack_exits_3_with_its_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(gate, "find_interpreters", list)
    assert gate.main(["test"]) == 3
    assert "pyenv install" in capsys.readouterr().err


def test_arguments_after_the_verb_are_passed_through_and_count_last(
    monkeypatch: pytest.MonkeyPatch, commands: list[list[str]], tmp_path: Path
) -> None:
    monkeypatch.setattr(gate, "ROOT", tmp_path)
    monkeypatch.setattr(gate, "find_interpreters", lambda: ALL)
    monkeypatch.setattr(gate, "ready_venv", lambda root, found: Path("/v"))
    monkeypatch.setattr(gate, "cores", lambda: 3)
    gate.main(["prove", "--jobs", "1"])
    gate.main(["test", "-e", "py312", "--", "-k", "close"])
    assert commands == [
        ["/v/bin/lastbus", "prove", "--jobs", "6", "--jobs", "1"],
        ["/v/bin/tox", "run", "-e", "py312", "--", "-k", "close"],
    ]


@pytest.mark.parametrize(("cores", "abreast", "workers"), [(1, 1, 0), (2, 2, 0), (4, 4, 0), (8, 4, 2), (16, 4, 4)])
def test_the_interpreters_share_the_cores(cores: int, abreast: int, workers: int) -> None:
    arguments = ["run-parallel", "--parallel", str(abreast), "--parallel-no-spinner"]
    assert gate.plan([], 4, cores) == (arguments, workers)


def test_with_arguments_one_interpreter_at_a_time_takes_all_cores() -> None:
    assert gate.plan(["-e", "lint"], 4, 8) == (["run", "-e", "lint"], 8)


def test_a_tox_that_tested_nothing_is_not_a_success(
    monkeypatch: pytest.MonkeyPatch, commands: list[list[str]], tmp_path: Path
) -> None:
    monkeypatch.setattr(gate, "ROOT", tmp_path)
    monkeypatch.setattr(gate, "find_interpreters", lambda: ALL)
    monkeypatch.setattr(gate, "ready_venv", lambda root, found: Path("/v"))
    assert gate.main(["test"]) == 5


def test_an_old_python_can_read_the_gate() -> None:
    ast.parse(Path(gate.__file__).read_text(), feature_version=(3, 8))


# What pytest said


def report(path: Path, **counts: object) -> None:
    attributes = " ".join(f'{name}="{value}"' for name, value in counts.items())
    path.write_text(f"<testsuites><testsuite {attributes}/></testsuites>")


def test_the_closing_lines_come_from_pytests_own_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(tmp_path / "py310.xml", tests=9, failures=1, errors=1, skipped=2, time="1.5")
    report(tmp_path / "py311.xml", tests=4, failures=0, errors=0, skipped=0, time="2.25")
    gate.print_tallies(gate.read_tallies(tmp_path))
    assert capsys.readouterr().out.splitlines() == [
        "py310: 5 passed, 2 failed, 2 skipped in 1.50s",
        "py311: 4 passed, 0 failed in 2.25s",
        "==== 9 passed, 2 failed, 2 skipped in 3.75s on py310, py311 ====",
    ]


@pytest.mark.slow
def test_a_real_report_of_pytest_is_understood(tmp_path: Path) -> None:
    """Runs a pytest of its own."""
    (tmp_path / "test_one.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 0\n@pytest.mark.skip\ndef test_c(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(tmp_path)]
    command += ["-p", "no:cacheprovider", "-p", "no:xdist", f"--junit-xml={tmp_path}/py312.xml", str(tmp_path)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False, cwd=tmp_path)
    tally = gate.read_tallies(tmp_path)["py312"]
    assert tally == Tally(1, 1, 1, tally.seconds)


def test_a_run_that_collected_nothing_or_was_cut_short_has_no_tally(tmp_path: Path) -> None:
    report(tmp_path / "py310.xml", tests=0, time="0.1")
    (tmp_path / "py311.xml").write_text("<testsuites><test")
    assert gate.read_tallies(tmp_path) == {}
