"""The pages in a real browser: opened from disk, on a desk, on a phone, in the dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graph_transplant.graphs import Skipped
from graph_transplant.report.html import write_report
from graph_transplant.report.pages import write_card, write_explanations, write_gallery
from graph_transplant.trained.explanation import ExplainedRows
from page_samples import (
    NASTY,
    card,
    explanation,
    mixture,
    nasty_card,
    nasty_explanation,
    records,
)

pytestmark = pytest.mark.browser

NAMES = ("card", "card-labels", "card-values", "explain", "gallery", "report", "long", "nasty")

# Text that can be seen, with the colour it has and the colour behind it; drawings are looked at
# by themselves: there colour is laid over colour.
CONTRASTS = """() => {
  const parse = text => (text.match(/[0-9.]+/g) || []).map(Number);
  const channel = value => {
    const v = value / 255;
    return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  };
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = element => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      const parts = parse(colour);
      if (colour.startsWith('rgb') && (parts.length < 4 || parts[3] === 1)) return parts;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || element.closest('svg')) continue;
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height) continue;
    const one = light(parse(getComputedStyle(element).color)), two = light(behind(element));
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    found.push([Math.round(100 * ratio) / 100, element.textContent.trim().slice(0, 40)]);
  }
  return found.sort((a, b) => a[0] - b[0]).slice(0, 3);
}"""

# Drawings whose accessible name would be empty.
UNNAMED = """() => [...document.querySelectorAll('svg, img')].filter(one => {
  if (one.getAttribute('aria-hidden') === 'true') return false;
  const name = one.getAttribute('aria-label') || one.getAttribute('alt')
    || one.querySelector(':scope > title')?.textContent;
  return !(name || '').trim() || (one.tagName === 'svg' && one.getAttribute('role') !== 'img');
}).length"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every page, made once."""
    place = tmp_path_factory.mktemp("pages")
    write_card(card(), place / "card.html")
    write_card(card("multilabel"), place / "card-labels.html")
    write_card(card("regression"), place / "card-values.html")
    write_explanations(
        ExplainedRows(
            (explanation(), explanation("BACE_2")), (Skipped(3, "x", "broken"),), "a/bace.csv"
        ),
        place / "explain.html",
    )
    write_gallery([mixture(), mixture()], place / "gallery.html")
    write_report(records(), place / "report.html")
    # Names of 10,000 letters without a space, and others that mean harm.
    write_explanations([nasty_explanation(NASTY["long"])], place / "long.html")
    write_card(nasty_card(NASTY["script"]), place / "nasty.html")
    return place


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser; tests are skipped where there is none."""
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("there is no chromium on this machine")
    with driver.sync_playwright() as playwright:
        # Root may not use the sandbox; the pages are our own.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A page as it was opened, and everything that went wrong."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str) -> None:
        self.problems: list[str] = []
        address = path.as_uri()
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme
        )
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("dialog", lambda dialog: self.problems.append(dialog.message))
        self.page.on(
            "request",
            lambda request: self.problems.append(request.url) if request.url != address else None,
        )
        self.page.goto(address)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *problem: object) -> None:
        self.context.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [1200, 360])
def test_pages_open_from_disk_and_fit(chromium: Any, folder: Path, name: str, width: int) -> None:
    with Visit(chromium, folder / f"{name}.html", width, "light") as visit:
        assert visit.problems == []
        wide, room = visit.page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")
        assert wide <= room
        assert visit.page.evaluate(UNNAMED) == 0
        assert visit.page.evaluate("document.querySelectorAll('svg').length") > 0
        # Landmarks and one heading of the first order.
        assert visit.page.get_by_role("main").count() == 1
        assert visit.page.get_by_role("heading", level=1).count() == 1
        assert visit.page.title().strip()
        # Nothing is smaller than can be read.
        small = visit.page.evaluate(
            "Math.min(...[...document.querySelectorAll('main *')].filter(e => e.innerText?.trim()"
            " && !e.closest('svg') && e.tagName !== 'SUB')"
            ".map(e => parseFloat(getComputedStyle(e).fontSize)))"
        )
        assert small >= 12


@pytest.mark.parametrize("name", ["card", "explain", "gallery", "report"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_in_the_dark(
    chromium: Any, folder: Path, name: str, scheme: str
) -> None:
    with Visit(chromium, folder / f"{name}.html", 1000, scheme) as visit:
        back, front = visit.page.evaluate(
            "[getComputedStyle(document.body).backgroundColor,"
            " getComputedStyle(document.body).color]"
            ".map(c => c.match(/[0-9]+/g).map(Number).reduce((a, b) => a + b) / 3)"
        )
        assert (back < 64 and front > 192) if scheme == "dark" else (back > 192 and front < 64)
        weakest = visit.page.evaluate(CONTRASTS)
        assert weakest, "no text was found"
        assert weakest[0][0] >= 4.5, weakest


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_letters_of_drawings_stand_out_from_the_page(
    chromium: Any, folder: Path, scheme: str
) -> None:
    with Visit(chromium, folder / "explain.html", 1000, scheme) as visit:
        script = CONTRASTS.replace("|| element.closest('svg')", "|| !element.closest('svg text')")
        weakest = visit.page.evaluate(script.replace("(element).color", "(element).fill"))
        assert weakest[0][0] >= 4.5, weakest


def test_drawings_are_named_for_those_who_cannot_see_them(chromium: Any, folder: Path) -> None:
    with Visit(chromium, folder / "explain.html", 1000, "light") as visit:
        shown = visit.page.get_by_role("img", name="BACE_1, saliency of transplant-ep")
        assert shown.count() == 1
        assert shown.locator("desc").text_content() == (
            "Molecule of 7 atoms and 7 bonds. Most salient: O 1, C 2, C 3."
        )
    with Visit(chromium, folder / "gallery.html", 1000, "light") as visit:
        assert visit.page.get_by_role("img", name="Mixed graph").count() == 2


def test_what_scrolls_can_be_reached_by_keyboard(chromium: Any, folder: Path) -> None:
    with Visit(chromium, folder / "card.html", 360, "light") as visit:
        reached = set()
        for _ in range(6):
            visit.page.keyboard.press("Tab")
            reached.add(
                visit.page.evaluate(
                    "document.activeElement.className || document.activeElement.tagName"
                )
            )
        assert {"scroll", "PRE"} <= reached


def test_print_shows_everything_on_white(chromium: Any, folder: Path) -> None:
    with Visit(chromium, folder / "gallery.html", 800, "dark") as visit:
        visit.page.emulate_media(media="print", color_scheme="dark")
        ink = visit.page.evaluate("getComputedStyle(document.querySelector('h1')).color")
        assert sum(map(int, ink.strip("rgb()").split(","))) < 200
        assert len(visit.page.pdf()) > 10_000
