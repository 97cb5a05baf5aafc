"""A copy of a tree: all that a run needs of it, and the original's bytes whenever no mutation is in."""

from __future__ import annotations

import os

import pytest

from lastbus.proof.copies import Copy, share_bytecode


@pytest.mark.guarantee("MUT-07")
def test_a_copy_has_everything_but_version_control_environments_and_caches(sample, tmp_path):
    for file in (".git/config", ".tox/a", "x/.mypy_cache/a", "x/y/__pycache__/a.pyc", "env/pyvenv.cfg", "env/bin/a"):
        sample.write(file, "x")
    sample.write("x/y/data.txt", "x")
    (sample.root / "link").symlink_to("x/y")

    root = Copy(sample.root, tmp_path / "copy").root

    assert sorted(path.name for path in root.iterdir()) == sorted(
        {path.name for path in sample.root.iterdir()} - {".git", ".tox", "env"}
    )
    assert [path.name for path in (root / "x").rglob("*")] == ["y", "data.txt"]
    assert (root / "link").is_symlink()
    assert (root / "src/shop.py").stat().st_mtime_ns == (sample.root / "src/shop.py").stat().st_mtime_ns


@pytest.mark.guarantee("MUT-07", "MUT-17")
def test_a_mutation_is_in_a_copy_for_a_while_and_never_with_a_time_that_was_there_before(sample, tmp_path):
    copy = Copy(sample.root, tmp_path / "copy")
    file = copy.root / "src/shop.py"
    before, times = file.read_bytes(), [file.stat().st_mtime_ns]

    for text in ("x = 1\n", "x = 2\n"):
        with copy.mutated({"src/shop.py": text}):
            assert file.read_text() == text
            times.append(file.stat().st_mtime_ns)
        assert (file.read_bytes(), file.stat().st_mtime_ns) == (before, times[0])

    assert len({time // 10**9 for time in times}) == 3
    assert (sample.root / "src/shop.py").read_bytes() == before


def test_what_one_copy_has_compiled_all_have(sample, tmp_path):
    copies = [Copy(sample.root, tmp_path / str(number)) for number in range(3)]
    for number, name in ((0, "shop"), (1, "till")):
        cache = copies[number].root / "src" / "__pycache__"
        cache.mkdir()
        (cache / f"{name}.pyc").write_bytes(name.encode())

    share_bytecode(copies)

    for copy in copies:
        assert sorted(os.listdir(copy.root / "src" / "__pycache__")) == ["shop.pyc", "till.pyc"]
