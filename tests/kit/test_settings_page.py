"""Settings page: it says what the table says, and `--check` notices when it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastbus._kit.settings_page import main, page
from lastbus._settings import SETTINGS, SWITCHES
from tests.tidy.source import ROOT


def test_the_page_is_what_the_table_says() -> None:
    assert (ROOT / "docs" / "SETTINGS.md").read_text(encoding="utf-8") == page()


def test_every_setting_has_one_row_with_its_default_and_its_clamp() -> None:
    rows = {row.split("`")[1]: row for row in page().splitlines() if row.startswith("| `")}

    assert list(rows) == [each.name for each in (*SETTINGS, *SWITCHES)]
    assert "| 604 800 | seconds | a bad value |" in rows["PLAITA_EVENT_TTL_SECONDS"]
    assert "| 0.1 to 86 400, WARNING |" in rows["PLAITA_EVENT_INDEX_SWEEP_INTERVAL"]


def test_a_check_tells_a_stale_page_from_a_fresh_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "settings.md"

    assert main(["--check", "--file", str(file)]) == 1
    assert main(["--file", str(file)]) == 0
    assert main(["--check", "--file", str(file)]) == 0
    file.write_text(page() + "\n", encoding="utf-8")
    assert main(["--check", "--file", str(file)]) == 1
    assert "up to date" in capsys.readouterr().out
