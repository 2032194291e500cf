"""MkDocs' hook for the site (`make site`): navigation, links that leave docs/, what the search finds.

Pages are written to be read in the repository, so they link to its files: `../eosdb/model/clock.py`,
`../benchmarks/RESULTS.md`. The site shows each of these files on a page of its own below `tree/`, so that
it needs no other host, and shows the code that it was built from.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = "docs"
TREE: Final = "tree"
"""The folder of the site where files from outside docs/ are."""
_AS_THEY_ARE: Final = {".svg", ".png", ".ipynb"}
_LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
_CODE: Final = re.compile(r"(?ms)^ *```.*?^ *```$|`[^`\n]+`")
_FENCE: Final = "`" * 8
_CLASS: Final = re.compile(r"#eosdb\.(?:\w+\.)*((?:[A-Z][a-z]+)+)$")
"""An address in the reference."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """`decisions/0*.md` in the navigation stands for all of them; a page that is only expected (`extra:
    expected`) is left out while it is not there."""
    expected = set(config.extra.get("expected", ()))
    config.nav = _navigation(config.nav or [], Path(config.docs_dir), expected)
    return config


def _navigation(entry: Any, docs: Path, expected: set[str]) -> Any:
    if isinstance(entry, dict):
        return {title: _navigation(below, docs, expected) for title, below in entry.items()}
    if not isinstance(entry, list):
        return entry
    found: list[Any] = []
    for each in entry:
        (page,) = each.values() if isinstance(each, dict) else [each]
        if each is page and "*" in page:
            found += sorted(path.relative_to(docs).as_posix() for path in docs.glob(page))
        elif isinstance(page, list) or page not in expected or (docs / page).exists():
            found.append(_navigation(each, docs, expected))
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds what the pages link to outside docs/, and what is linked from there."""
    waiting = list(files.documentation_pages())
    while waiting:
        page = waiting.pop()
        for target in _targets(source_of(page.src_uri), page.content_string):
            uri = site_path(target)
            if uri in files.src_uris or not uri.startswith(TREE) or not (ROOT / target).is_file():
                continue  # What is missing is MkDocs' to report.
            files.append(made := _of_tree(target, config))
            if target.endswith(".md"):
                waiting.append(made)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turns links between files of the repository into links between pages of the site."""
    here = page.file.src_uri
    if here.startswith("decisions/"):
        page.meta["search"] = {"exclude": True}  # What users look for is on other pages.
    source = source_of(here)
    if not source.endswith(".md"):
        return markdown

    def new(link: str) -> str:
        return relpath(site_path(_resolved(source, link)), PurePosixPath(here).parent.as_posix())

    return _outside_of_code(markdown, lambda text: _LINK.sub(lambda found: new(found[1]), text))


@event_priority(100)  # Before the search writes its index.
def on_post_build(config: MkDocsConfig) -> None:
    """Puts `Producer` before `ProducerFencedError` when somebody types "producer": the search takes every
    word that begins so, and the rarer it is, the higher."""
    search: Any = config.plugins.get("material/search")
    for entry in search.search_index.entries if search else ():
        if name := _CLASS.search(entry["location"]):
            is_one_word = name[1][1:].islower()
            entry["boost"] = 4 if is_one_word else 0.2


def _targets(source: str, markdown: str) -> list[str]:
    """The files of the repository that a page links to."""
    return [_resolved(source, found) for found in _LINK.findall(_CODE.sub("", markdown))]


def site_path(path: str) -> str:
    """Where the site has a file of the repository."""
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    return f"{TREE}/{path}" + ("" if Path(path).suffix in {".md", *_AS_THEY_ARE} else ".md")


def source_of(uri: str) -> str:
    """The file of the repository that a page of the site shows."""
    if not uri.startswith(f"{TREE}/"):
        return f"{DOCS}/{uri}"
    path = uri.removeprefix(f"{TREE}/")
    inner = path.removesuffix(".md")
    return inner if Path(inner).suffix else path


def _resolved(source: str, link: str) -> str:
    return normpath((PurePosixPath(source).parent / link).as_posix())


def _outside_of_code(markdown: str, change: Any) -> str:
    """Changes what stands between the blocks and spans of code."""
    parts, at = [], 0
    for code in _CODE.finditer(markdown):
        parts += [change(markdown[at : code.start()]), code[0]]
        at = code.end()
    return "".join([*parts, change(markdown[at:])])


def _of_tree(path: str, config: MkDocsConfig) -> File:
    uri, suffix = site_path(path), Path(path).suffix
    if suffix in _AS_THEY_ARE:
        return File.generated(config, uri, abs_src_path=str(ROOT / path))
    text = (ROOT / path).read_text(encoding="utf-8")
    if suffix != ".md":
        text = f"# {path}\n\n{_FENCE}{suffix[1:]}\n{text}\n{_FENCE}\n"
    content = f"---\nsearch:\n  exclude: true\n---\n{text}"
    made = File.generated(config, uri, content=content)
    made.inclusion = InclusionLevel.NOT_IN_NAV
    return made
