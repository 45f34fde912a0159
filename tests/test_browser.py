"""The pages in a real browser: opened from disk, on a desk, on a phone, in the dark, on paper."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graph_transplant.errors import Skipped
from graph_transplant.report import render_report
from graph_transplant.report.explanations import render_explanations, render_gallery
from graph_transplant.results.examples import ExplainedRows
from graph_transplant.results.record import TrialRecord
from graph_transplant.results.results import Results
from graph_transplant.utils.schema import plain
from helpers.made_up_records import BETTER, NO_NETWORK, PLAIN, UNSURE, made_up, on
from helpers.page_samples import (
    NASTY,
    card,
    card_page,
    changed,
    explained,
    explanation,
    golden,
    mixture,
    nasty_card,
    nasty_explanation,
    rich,
)

pytestmark = pytest.mark.browser

RICH = Results(rich())
MOST_HIGH = 4500
"""Pixels that the page of a rich comparison may be high when its parts are folded."""

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
DRAWN_CONTRASTS = CONTRASTS.replace(
    "|| element.closest('svg')", "|| !element.closest('svg.chart text')"
).replace("(element).color", "(element).fill")

# Drawings whose accessible name would be empty.
UNNAMED = """() => [...document.querySelectorAll('svg, img')].filter(one => {
  if (one.getAttribute('aria-hidden') === 'true') return false;
  const name = one.getAttribute('aria-label') || one.getAttribute('alt');
  return !(name || '').trim() || (one.tagName === 'svg' && one.getAttribute('role') !== 'img');
}).length"""

# What is wider than the page, or scrolled sideways, or cut off without an ellipsis.
CUT_OFF = """() => [...document.querySelectorAll('html, main *')].filter(one => {
  const style = getComputedStyle(one);
  if (one.closest('svg, .unseen, thead') || style.display === 'inline') return false;
  const wide = one.scrollWidth > one.clientWidth + 1 && style.textOverflow !== 'ellipsis';
  return wide || one.getBoundingClientRect().right > innerWidth + 1;
}).map(one => one.outerHTML.slice(0, 200))"""
# Height in pixels of the smallest letters of charts.
DRAWN_LETTERS = """() => Math.min(99, ...[...document.querySelectorAll('svg.chart text')].map(
  one => parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a))"""

OPEN = "for (const one of document.querySelectorAll('details')) one.open = true"
BACK = "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"
INK = "getComputedStyle(document.querySelector('h1')).color.match(/[0-9]+/g).map(Number)"


def rivals() -> list[TrialRecord]:
    """Classical rivals on the folds of the rich records; the forest beats every network."""
    fields = ("data", "fingerprint", "repeat", "fold", "validation", "sizes", "settings")
    return [
        changed(
            {field: plain(getattr(record, field)) for field in fields} | NO_NETWORK,
            method=name,
            seconds=1.5,
            test={**record.test, "accuracy": score + record.fold / 500},
        )
        for record in rich("vanilla")
        for name, score in (("forest", 0.95), ("structure-blind", 0.5), ("majority", 0.17))
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every page, made once."""
    seen = (explanation(), explanation("BACE_2"))
    hard = [r for r in golden("motifs-conditions") if r.train_fraction == 1]
    trials = made_up("vanilla", PLAIN) + made_up(NASTY["script"], BETTER)
    trials += made_up(NASTY["long"], UNSURE)
    harm = on(NASTY["quotes"], trials, model=NASTY["right to left"])
    pages = {
        "card": card_page(card()),
        "card-labels": card_page(card("multilabel")),
        "card-values": card_page(card("regression")),
        "explain": render_explanations(
            ExplainedRows(seen, (Skipped(3, "x", "broken"),), "a/bace.csv")
        ),
        "gallery": render_gallery([mixture(), mixture()]),
        "rich": render_report(RICH),
        "hard": render_report(Results(hard)),
        "rivals": render_report(Results([*rich(), *rivals()])),
        "nasty-report": render_report(Results(harm)),
        "long": render_explanations(explained(nasty_explanation(NASTY["long"]))),
        "nasty": card_page(nasty_card(NASTY["script"])),
    }
    assert tuple(pages) == NAMES
    place = tmp_path_factory.mktemp("pages")
    for name, text in pages.items():
        (place / f"{name}.html").write_text(text, encoding="utf-8")
    return place


NAMES = (
    *("card", "card-labels", "card-values", "explain", "gallery", "rich", "hard", "rivals"),
    *("nasty-report", "long", "nasty"),
)


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
        self.page.set_default_timeout(60_000)
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
def test_pages_open_from_disk_and_fit(chromium: Any, folder: Path, name: str) -> None:
    lines = "e => e.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight)"
    with Visit(chromium, folder / f"{name}.html", 1200, "light") as visit:
        page = visit.page
        page.evaluate(OPEN)
        assert page.evaluate(UNNAMED) == 0
        assert page.get_by_role("heading", level=1).count() == 1
        assert page.title().strip()
        for width in (1200, 390, 360):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate(CUT_OFF) == []
            assert page.locator("svg:visible").count() > 0
            # Nothing is smaller than can be read.
            small = page.evaluate(
                "Math.min(...[...document.querySelectorAll('main *')].filter(e =>"
                " e.innerText?.trim() && !e.closest('svg') && e.tagName !== 'SUB')"
                ".map(e => parseFloat(getComputedStyle(e).fontSize)))"
            )
            assert small >= 12
            if width >= 390:
                assert page.evaluate(DRAWN_LETTERS) >= 12
            if name in ("rich", "rivals"):  # names of methods do not break inside a word
                names = page.locator("main .whole:visible")
                assert names.count() > 0
                assert max(names.evaluate_all(f"all => all.map({lines})")) < 1.5
        assert visit.problems == []


# ------------------------------------------------------------------ the first screen


@pytest.mark.parametrize("name", ["rich", "hard", "rivals"])
def test_verdict_forest_and_what_next_are_on_the_first_screen(
    chromium: Any, folder: Path, name: str
) -> None:
    with Visit(chromium, folder / f"{name}.html", 1200, "light") as visit:
        page = visit.page
        for selector in ("h1", ".dek", ".first svg.chart", "aside.next"):
            box = page.locator(selector).first.bounding_box()
            assert box["y"] >= 0
            assert box["y"] + box["height"] <= 800, selector
        if name == "rich":
            assert page.locator("details[open]").count() == 0
            assert page.evaluate("document.scrollingElement.scrollHeight") <= MOST_HIGH


def test_a_phone_shows_p_and_time_too(chromium: Any, folder: Path) -> None:
    with Visit(chromium, folder / "rich.html", 360, "light") as visit:
        row = visit.page.locator("table.ranking tbody tr").first
        seen = row.locator("td:visible").evaluate_all("all => all.map(e => e.dataset.name)")
        assert seen == ["Accuracy, %", "Difference, points", "p", "Time"]


# ------------------------------------------------------------------ light and dark


@pytest.mark.parametrize("name", ["card", "explain", "gallery", "rich"])
def test_text_stands_out_in_the_colours_of_the_system(
    chromium: Any, folder: Path, name: str
) -> None:
    with Visit(chromium, folder / f"{name}.html", 1000, "dark") as visit:
        page = visit.page
        page.evaluate(OPEN)
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            back = sum(page.evaluate(BACK)) / 3
            assert (back < 64) if scheme == "dark" else (back > 192)
            for script in (CONTRASTS, DRAWN_CONTRASTS):
                weakest = page.evaluate(script)
                assert not weakest or weakest[0][0] >= 4.5, weakest
        assert visit.problems == []


# ------------------------------------------------------------------ sorting

ORDER = "[...document.querySelectorAll('table.sortable tbody th')].map(e => e.innerText.trim())"
COLUMNS = (
    ("Accuracy, %", "score_mean", True),
    ("Difference, points", "difference", True),
    ("p", "p_holm", False),
    ("Time", "seconds_median", False),
)


def sorted_by(field: str, *, falling: bool) -> list[str]:
    """The methods as Python sorts them: without a value last, equal ones in their old order."""
    rows = RICH.rows
    known = [row for row in rows if row[field] is not None]
    known.sort(key=lambda row: row[field], reverse=falling)
    return [row["method"] for row in (*known, *(row for row in rows if row[field] is None))]


def test_the_table_is_sorted_by_a_click_on_a_heading(chromium: Any, folder: Path) -> None:
    ranked = [row["method"] for row in RICH.rows]
    with Visit(chromium, folder / "rich.html", 1200, "light") as visit:
        page = visit.page
        assert page.evaluate(ORDER) == ranked
        for title, field, falls in COLUMNS:
            button = page.get_by_role("button", name=title, exact=True)
            head = page.locator("th", has=button)
            for falling in (falls, not falls):
                button.click()
                assert page.evaluate(ORDER) == sorted_by(field, falling=falling)
                way = "descending" if falling else "ascending"
                assert head.get_attribute("aria-sort") == way
                assert page.get_by_role("status").inner_text() == f"Sorted by {title}, {way}"
                assert page.locator("[aria-sort]").count() == 1
            button.click()
            assert page.evaluate(ORDER) == ranked
            assert page.locator("[aria-sort]").count() == 0
        assert visit.problems == []


def test_the_page_is_used_by_keyboard(chromium: Any, folder: Path) -> None:
    with Visit(chromium, folder / "rich.html", 1200, "light") as visit:
        page = visit.page
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Method":
                break
        names = sorted(RICH.methods)
        page.keyboard.press("Enter")
        assert page.evaluate(ORDER) == names
        page.keyboard.press("Space")
        assert page.evaluate(ORDER) == names[::-1]
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


# ------------------------------------------------------------------ without and against scripts


def test_a_page_without_its_script_shows_everything_and_no_button(
    chromium: Any, folder: Path
) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "rich.html").as_uri())
    assert page.get_by_role("button").count() == 0
    assert page.locator("table.ranking tbody tr").count() == 3
    page.get_by_text("Reliability diagram", exact=True).click()
    assert page.locator("#gcs-3-reliability svg").is_visible()
    context.close()


def test_no_other_script_runs_even_if_one_gets_in(chromium: Any, folder: Path) -> None:
    text = (folder / "rich.html").read_text(encoding="utf-8")
    broken = folder / "broken-in.html"
    broken.write_text(text.replace("</main>", "<script>document.title = 'in'</script></main>"))
    with Visit(chromium, broken, 1000, "light") as visit:
        assert visit.page.title() != "in"
        assert any("Content Security Policy" in problem for problem in visit.problems)
        assert visit.page.locator("button.sort").count() > 1


def test_an_address_into_something_folded_opens_it_and_a_damaged_one_does_no_harm(
    chromium: Any, folder: Path
) -> None:
    with Visit(chromium, folder / "hard.html", 1200, "light") as visit:
        page = visit.page
        group = page.locator("[id='gcs-3--calibration']")
        assert group.get_attribute("open") is None
        page.evaluate("location.hash = 'gcs-3-reliability'")
        page.wait_for_function("document.getElementById('gcs-3--calibration').open")
        page.goto((folder / "hard.html").as_uri() + "#%E0%A4%A")
        page.reload()
        assert page.locator("html[data-script=on]").count() == 1
        assert [one for one in visit.problems if not one.startswith("file:")] == []


# ------------------------------------------------------------------ docs

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_code_in_the_docs_is_neither_cut_off_nor_scrolled(chromium: Any, tmp_path: Path) -> None:
    """All blocks with the style sheet of the docs, as wide as a column of furo's."""
    style = (DOCS / "_static" / "custom.css").read_text(encoding="utf-8")
    blocks = [
        f"<div class='highlight'><pre>{html.escape(block)}</pre></div>"
        for path in sorted(DOCS.glob("*.md"))
        for block in re.findall(
            r"^```(?:python|console|json|text)\n(.*?)^```$",
            path.read_text(encoding="utf-8"),
            re.M | re.S,
        )
    ]
    pre = "pre { box-sizing: border-box; font: 13px monospace; overflow: auto; padding: 10px 14px }"
    page = tmp_path / "code.html"
    page.write_text(
        f"<meta charset=utf-8><style>body {{ max-width: 736px; margin: 0 auto }} {pre} {style}"
        f"</style>{''.join(blocks)}",
        encoding="utf-8",
    )
    fits = "all => all.every(e => e.scrollWidth <= e.clientWidth)"
    assert len(blocks) > 50
    for width in (1200, 390):
        with Visit(chromium, page, width, "light") as visit:
            assert visit.page.locator("pre").evaluate_all(fits)


# ------------------------------------------------------------------ paper


def test_paper_gets_light_colours_everything_open_and_no_buttons(
    chromium: Any, folder: Path
) -> None:
    with Visit(chromium, folder / "hard.html", 688, "dark") as visit:
        page = visit.page
        folded = page.locator("details:not([open])").count()
        assert folded > 5
        page.emulate_media(media="print")
        assert sum(page.evaluate(INK)) < 200
        hidden = page.evaluate(
            "[...document.querySelectorAll('section:not(.harder) > details > :not(summary)')]"
            ".filter(e => !e.checkVisibility({contentVisibilityAuto: true})"
            " || !e.getBoundingClientRect().height).length"
        )
        assert hidden == 0
        # A4 upright, without its margins, is 182 mm or 688 pixels wide: nothing is cut off.
        widest = page.evaluate(
            "Math.max(...[...document.querySelectorAll('table, svg, pre, .maps')]"
            ".map(e => e.getBoundingClientRect().right))"
        )
        assert widest <= 689
        pages = len(re.findall(rb"/Type\s*/Page\b", page.pdf(format="A4")))
        assert pages <= 20
