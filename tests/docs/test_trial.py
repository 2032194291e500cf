"""The page that shows a run step by step is what its program plays, and needs nothing beside itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from scripts import make_trial

pytestmark = pytest.mark.process


def test_the_committed_page_is_what_the_run_gives(tmp_path: Path) -> None:
    steps = make_trial.play(tmp_path / "shop.db")
    assert make_trial.PAGE.read_text(encoding="utf-8") == make_trial.page(steps), "run `make docs`"
    assert [step.answer.partition(":")[0] for step in steps if "Error" in step.answer] == [
        "ProducerFencedError",
        "NetworkExceptionError",
    ]
    assert [row.shown for row in steps[-1].records if row.by == "app"] == ["soup", "rice", "fish"]


@pytest.mark.parametrize("width", [375, 1100])
def test_it_goes_from_step_to_step_without_a_server_and_fits_the_screen(width: int) -> None:
    chromium = shutil.which("chromium")
    assert chromium, "scripts/setup.sh installs chromium"
    asked: list[str] = []
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        with playwright.chromium.launch(executable_path=chromium, args=options) as browser:
            page = browser.new_page(viewport={"width": width, "height": 760})
            page.on("request", lambda request: asked.append(request.url))
            page.goto(make_trial.PAGE.as_uri())
            seen = []
            while page.get_by_role("button", name="Next").is_enabled():
                seen.append(page.locator("section:visible").get_attribute("id"))
                page.get_by_role("button", name="Next").click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert seen == [f"step-{number}" for number in range(1, len(make_trial.STORY))]
    assert len(asked) == 1
