"""The site (`make site`): it is built strictly, asks no other host, and has every public name."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from playwright.sync_api import sync_playwright

from scripts.site_pages import site_path, source_of
from tests.programs import ended
from tests.tidy.tree import ROOT

pytestmark = pytest.mark.process

PUBLIC = ("eosdb", "eosdb.aio", "eosdb.testing", "eosdb.integrations.relay", "eosdb.spark_io")
FOREIGN = re.compile(
    r"""(?:<(?:script|img|iframe)[^>]*\ssrc=|<link[^>]*\shref=)["']?(?:https?:)?//"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = ended(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_is_built_strictly_and_asks_no_other_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 100
    for page in pages:
        assert not FOREIGN.search(page.read_text(encoding="utf-8")), page


def test_the_site_has_the_settings_with_their_defaults_and_the_errors_with_their_numbers(
    site: Path,
) -> None:
    producer = re.sub(r"<[^>]+>", "", (site / "reference/producer.html").read_text())
    assert "linger_ms: int = 0" in producer
    assert "max_request_size: int = 1_048_576" in producer
    errors = re.sub(r"<[^>]+>", "", (site / "reference/errors.html").read_text())
    assert "Kafka's error 90, PRODUCER_FENCED." in errors


def search_index(site: Path) -> dict[str, Any]:
    text = (site / "search/search_index.js").read_text(encoding="utf-8")
    index: dict[str, Any] = json.loads(text[text.index("{") : text.rindex("}") + 1])
    return index


def test_the_search_finds_what_the_pages_say_and_neither_source_code_nor_decisions(
    site: Path,
) -> None:
    entries = search_index(site)["docs"]
    assert any("idempotency_key" in entry["text"] for entry in entries)
    assert not {entry["location"].partition("/")[0] for entry in entries} & {"tree", "decisions"}


def test_every_public_name_is_a_word_of_the_search(site: Path) -> None:
    """In the title of its entry, as the search takes titles apart."""
    index = search_index(site)
    separator = re.compile(index["config"]["separator"])
    titles = {entry["location"].partition("#")[2]: entry["title"] for entry in index["docs"]}
    for name in names_on_the_pages():
        assert name.rpartition(".")[2] in separator.split(titles[name]), name


NAMES = {
    "Producer": "producer.html#eosdb.Producer",
    "consumer": "consumer.html#eosdb.Consumer",
    "TopicPartition": "consumer.html#eosdb.TopicPartition",
    "producerfencederror": "errors.html#eosdb.ProducerFencedError",
    "eosdb.Database": "database.html#eosdb.Database",
}
"""What somebody types, and the section of the reference that comes first, below its page."""


def test_opened_from_the_disk_it_finds_a_class_by_its_name_and_asks_nobody(site: Path) -> None:
    chromium = shutil.which("chromium")
    assert chromium, "scripts/setup.sh installs chromium"
    asked: list[str] = []
    found: dict[str, list[str]] = {}
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        with playwright.chromium.launch(executable_path=chromium, args=options) as browser:
            page = browser.new_page()
            page.on("request", lambda request: asked.append(request.url))
            page.goto((site / "index.html").as_uri())
            page.click("input.md-search__input")
            page.get_by_text("Type to start searching").wait_for(timeout=60_000)
            for name in NAMES:
                page.fill("input.md-search__input", "")
                page.get_by_text("Type to start searching").wait_for(timeout=60_000)
                page.keyboard.type(name)
                words = name.replace(".", "+")
                results = page.locator(f".md-search-result__link[href*='?h={words.lower()}']")
                results.first.wait_for(timeout=60_000)
                links = results.evaluate_all("links => links.map(link => link.href)")
                found[name] = [re.sub(r"\?h=[^#]*", "", link) for link in links[:2]]
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
    assert any("search_index" in url for url in asked)
    for name, address in NAMES.items():
        assert f"{site.as_uri()}/reference/{address}" in found[name]


SOUND = {
    "index.md": "# Home\n\n[there](there.md#a-heading)\n[code](../eosdb/model/clock.py)\n",
    "there.md": "# There\n\n## A heading\n",
}


@pytest.mark.parametrize(
    ("name", "text", "nav", "complaint"),
    [
        ("there.md", SOUND["there.md"], ["index.md", "there.md"], None),
        ("index.md", "[gone](gone.md)", ["index.md", "there.md"], "gone.md"),
        ("index.md", "[gone](there.md#gone)", ["index.md", "there.md"], "#gone"),
        ("index.md", "[gone](../eosdb/gone.py)", ["index.md", "there.md"], "gone.py"),
        ("index.md", "# Home", ["index.md", "there.md", "gone.md"], "gone.md"),
        ("index.md", "# Home", ["index.md"], "there.md"),
        ("index.md", "# Home", ["index.md", "there.md", "top.md"], None),
    ],
    ids=["sound", "page", "anchor", "source file", "nav", "page in no nav", "page still expected"],
)
def test_what_leads_nowhere_fails_the_build(
    name: str,
    text: str,
    nav: list[str],
    complaint: str | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With the settings of mkdocs.yml, on two pages."""
    (tmp_path / "docs").mkdir()
    for page, content in {**SOUND, name: text}.items():
        (tmp_path / "docs" / page).write_text(content, encoding="utf-8")
    with (ROOT / "mkdocs.yml").open("rb") as settings:
        config = load_config(
            settings,
            docs_dir=str(tmp_path / "docs"),
            site_dir=str(tmp_path / "site"),
            nav=nav,
            plugins=[],
            extra_css=[],
            strict=True,
        )
        config.extra["expected"] = ["top.md"]
    if complaint is None:
        build(config)
    else:
        with pytest.raises(Abort):
            build(config)
        assert complaint in caplog.text


def names_on_the_pages() -> list[str]:
    pages = (ROOT / "docs/reference").glob("*.md")
    return [name for page in pages for name in re.findall(r"(?m)^::: (\S+)$", page.read_text())]


def test_every_public_name_is_on_one_page_of_the_reference() -> None:
    """Once: under the name that it has in eosdb itself if it is there, too."""
    public: dict[str, object] = {}
    for package in PUBLIC:
        module = import_module(package)
        for name in module.__all__:
            found = getattr(module, name)
            if package == "eosdb" or not any(found is other for other in public.values()):
                public[f"{package}.{name}"] = found
    named = names_on_the_pages()
    assert len(named) == len(set(named))
    assert not public.keys() - set(named)


def test_every_public_method_on_these_pages_has_a_docstring() -> None:
    """What has none is left out by mkdocstrings without a word."""
    without = []
    for name in names_on_the_pages():
        module, _, attribute = name.rpartition(".")
        shown = getattr(import_module(module), attribute)
        for member, value in inspect.getmembers_static(shown) if inspect.isclass(shown) else ():
            function = inspect.unwrap(getattr(value, "fget", getattr(value, "__func__", value)))
            if not inspect.isfunction(function) or member.startswith("_"):
                continue
            if function.__module__.startswith("eosdb"):
                without += [] if function.__doc__ else [f"{name}.{member}"]
    assert not without


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("docs/guide.md", "guide.md"),
        ("eosdb/model/clock.py", "tree/eosdb/model/clock.py.md"),
        ("benchmarks/RESULTS.md", "tree/benchmarks/RESULTS.md"),
    ],
)
def test_a_file_and_its_page_are_found_from_each_other(path: str, uri: str) -> None:
    assert site_path(path) == uri
    assert source_of(uri) == path
