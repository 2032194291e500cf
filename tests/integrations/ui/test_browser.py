"""The page in a real browser: live, without a script of anybody else's, and closed to other origins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, expect

import eosdb
from eosdb.integrations.ui.server import UiServer
from tests.integrations.ui.test_pages import PAGES

pytestmark = [pytest.mark.process, pytest.mark.slow]

PATIENCE_MS = 30_000


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A new window, which remembers in `page.heard` what went wrong and who was asked."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    yield context.new_page()
    context.close()


def test_no_name_runs_as_a_script_and_nobody_else_is_asked(page: Page, changing: UiServer) -> None:
    wrong: list[str] = []
    asked: set[str] = set()
    page.on("console", lambda one: wrong.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda one: asked.add(one.url.split("/")[2] or one.url))
    for path in PAGES:
        page.goto(f"http://127.0.0.1:{changing.port}{path}")
        assert page.evaluate("window.hacked") is None, path
    assert wrong == []
    assert asked == {f"127.0.0.1:{changing.port}"}


def test_what_another_process_writes_appears(page: Page, reading: UiServer, path: Path) -> None:
    page.goto(f"{reading.url}topics/orders/0")
    expect(page.locator("#state")).to_have_text("live")
    with eosdb.connect(path) as writer, writer.producer() as producer:
        producer.send("orders", b"just written", partition=0)
    expect(page.locator("tr.plain >> text=just written")).to_be_visible()


def test_a_transaction_is_aborted_with_the_token_of_the_address(
    page: Page, changing: UiServer, db: eosdb.Database
) -> None:
    page.goto(changing.url)
    assert "token" not in page.url
    page.click("text=Abort…")
    assert len(db.admin.open_transactions()) == 1
    page.click("button")
    expect(page.locator("#done")).to_contain_text("has ended with ABORT")
    assert db.admin.open_transactions() == []
    page.click("text=Back")
    expect(page.locator("h1")).to_have_text("Open transactions")
    page.goto(f"http://127.0.0.1:{changing.port}/dead-letters/orders.dlq")
    page.click("text=Send all back…")
    page.click("button")
    expect(page.locator("#done")).to_contain_text("3 dead letters")


def test_without_the_token_the_button_changes_nothing(
    page: Page, changing: UiServer, db: eosdb.Database
) -> None:
    page.goto(f"http://127.0.0.1:{changing.port}/")
    page.click("text=Abort…")
    page.fill(".token input", "guessed")
    page.click("button")
    expect(page.locator(".warn")).to_contain_text("nothing was changed")
    assert len(db.admin.open_transactions()) == 1


def test_a_page_of_another_origin_reads_and_changes_nothing(
    page: Page, changing: UiServer, db: eosdb.Database
) -> None:
    target = f"http://127.0.0.1:{changing.port}"
    fields = {"topic": "orders", "partition": 0, "offset": 5, "token": changing.token}
    inputs = "".join(f'<input name="{name}" value="{value}">' for name, value in fields.items())
    foreign = f"""<!doctype html><iframe id="frame" src="{target}/"></iframe>
        <form method="post" action="{target}/abort" target="sink">{inputs}</form>
        <iframe name="sink"></iframe>
        <script>
        fetch("{target}/").then(a => a.text()).then(t => window.read = t, e => window.read = "refused");
        document.forms[0].submit();
        </script>"""

    class Foreign(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(foreign.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    statuses: dict[str, int] = {}
    page.on("response", lambda one: statuses.__setitem__(one.url, one.status))
    with ThreadingHTTPServer(("127.0.0.1", 0), Foreign) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # Another name of this machine is another site, not only another origin.
        page.goto(f"http://localhost:{server.server_address[1]}/")
        page.wait_for_function("window.read !== undefined")
        while f"{target}/abort" not in statuses:
            page.wait_for_timeout(50)
        server.shutdown()
    assert page.evaluate("window.read") == "refused"
    assert statuses[f"{target}/abort"] == 403
    assert len(db.admin.open_transactions()) == 1


def test_a_telephone_shows_key_value_and_what_is_behind(
    browser: Browser, reading: UiServer
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    for path, seen in (
        ("/", ["Records behind"]),
        ("/groups", ["Records behind"]),
        ("/topics/orders/0", ["Key", "Value"]),
        ("/topics/orders/timeline", []),
        ("/dead-letters/orders.dlq", ["Error", "Value"]),
    ):
        page.goto(f"http://127.0.0.1:{reading.port}{path}")
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, path
        for name in seen:
            box = page.get_by_role("columnheader", name=name).last.bounding_box()
            assert box is not None
            assert box["width"] > 30, (path, name)
            assert box["x"] + box["width"] <= 390, (path, name)
    page.goto(f"http://127.0.0.1:{reading.port}/topics/orders/timeline")
    frame = page.evaluate("document.querySelector('.scroll').getBoundingClientRect().right")
    picture = page.evaluate("document.querySelector('svg.timeline').getBoundingClientRect().width")
    assert frame <= 390
    assert picture / 1_160 * 11 > 10, "the labels have ten pixels; the picture moves in its frame"
    context.close()


_CONTRAST = """() => {
  const within = (box, outer) => {
    const [x, y] = [box.left + 3, (box.top + box.bottom) / 2];
    return outer.left <= x && x <= outer.right && outer.top <= y && y <= outer.bottom;
  };
  const lum = ([r, g, b]) => [r, g, b]
    .map(c => (c /= 255) <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const colour = text => text.match(/[\\d.]+/g).map(Number);
  const ground = one => {
    for (; one; one = one.parentElement) {
      const c = colour(getComputedStyle(one).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c.slice(0, 3);
    }
    return matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0] : [255, 255, 255];
  };
  // The shape below the beginning of a text in the picture.
  const below = text => [...text.closest("svg").querySelectorAll("rect")].filter(rect =>
    getComputedStyle(rect).fill !== "rgba(0, 0, 0, 0)" && getComputedStyle(rect).fill !== "none"
    && within(text.getBoundingClientRect(), rect.getBoundingClientRect())).at(-1);
  const colours = one => {
    if (!one.closest("svg")) return [getComputedStyle(one).color, ground(one)];
    const shape = below(one);
    return [getComputedStyle(one).fill, shape ? colour(getComputedStyle(shape).fill) : ground(one)];
  };
  return [...document.querySelectorAll("body *:not(svg *), svg.timeline text")]
    .filter(one => one.checkVisibility())
    .filter(one => [...one.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
    .map(one => {
      const [front, behind] = colours(one);
      const [a, b] = [lum(colour(front).slice(0, 3)), lum(behind.slice(0, 3))];
      return [(Math.max(a, b) + .05) / (Math.min(a, b) + .05), one.outerHTML.slice(0, 110)];
    }).filter(([ratio]) => ratio < 4.5);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_and_used_without_a_mouse_or_a_screen(
    browser: Browser, changing: UiServer, scheme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    tree = context.new_cdp_session(page)
    asking = ("/abort?topic=orders&partition=0&offset=5", "/replay?topic=orders.dlq", "/nowhere")
    by_time = "/topics/orders/timeline?by=time"
    for path in (*PAGES, *asking, by_time):
        page.goto(f"http://127.0.0.1:{changing.port}{path}")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip", path
        assert page.locator("h1").count() == 1, path
        assert page.locator("th:not([scope])").count() == 0, path
        assert page.locator("table:not([aria-label])").count() == 0, path
        assert page.evaluate(_CONTRAST) == [], path
        for node in tree.send("Accessibility.getFullAXTree")["nodes"]:
            role = node.get("role", {}).get("value")
            if role in ("link", "button", "textbox", "combobox", "image", "table"):
                assert node["ignored"] or node["name"]["value"].strip(), (path, node)
    context.close()


def test_the_timeline_is_a_group_of_links_and_a_table(page: Page, reading: UiServer) -> None:
    page.goto(f"http://127.0.0.1:{reading.port}/topics/orders/timeline")
    picture = page.get_by_role("group", name="Transactions by offset")
    named = picture.get_by_role("link")
    expect(named).to_have_count(3)
    expect(picture.get_by_role("link", name="settled: aborted, 1 record")).to_have_count(1)
    page.focus("a.skip[href='#as-table']")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    rows = page.locator("details").get_by_role("row")
    expect(rows).to_have_count(4)
    expect(rows.nth(1)).to_contain_text("settled")
