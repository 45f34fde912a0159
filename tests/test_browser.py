"""The pages in a real browser: opened from disk, on a desk, on a phone, in the dark."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graph_transplant.experiments.across import across
from graph_transplant.experiments.summary import summarise
from graph_transplant.graphs import Skipped
from graph_transplant.report.html import write_across, write_report
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
    rich_records,
)

pytestmark = pytest.mark.browser

NAMES = (
    *("card", "card-labels", "card-values", "explain", "gallery", "report", "long", "nasty"),
    *("rich", "hard", "nasty-report", "across"),
)

RICH = rich_records()

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
    write_report(RICH, place / "rich.html")
    conditions = ((0.0, 1.0), (0.2, 1.0), (0.4, 1.0))
    hard = rich_records(models=("gcs", "gin"), conditions=conditions, points=6)
    write_report(hard, place / "hard.html", figures=False)
    harm = records(NASTY["quotes"], NASTY["script"], NASTY["right to left"])
    write_report(harm, place / "nasty-report.html", figures=False)
    rows = [row for name in ("A", "B", "C") for row in summarise(rich_records(data=name, points=2))]
    write_across(across(rows), rows, place / "across.html")
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
        self.page.set_default_timeout(10_000)
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


@pytest.mark.parametrize("name", ["card", "explain", "gallery", "report", "rich"])
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


# ------------------------------------------------------------------ sorting

ORDER = "[...document.querySelectorAll('table.sortable tbody th')].map(e => e.innerText.trim())"


def sorted_by(field: str, *, falling: bool) -> list[str]:
    """The methods as Python sorts them: without a value last, equal ones in their old order."""
    rows = summarise(RICH)
    known = [row for row in rows if getattr(row, field) is not None]
    known.sort(key=lambda row: getattr(row, field), reverse=falling)
    return [row.method for row in (*known, *(row for row in rows if row not in known))]


COLUMNS = (
    ("Accuracy, %", "score_mean", True),
    ("Difference, points", "difference", True),
    ("p (Holm)", "p_holm", False),
    ("ECE", "ece_mean", False),
    ("Time", "seconds_mean", False),
)


@pytest.mark.parametrize("width", [1200, 360])
def test_the_table_is_sorted_by_a_click_on_a_heading(
    chromium: Any, folder: Path, width: int
) -> None:
    ranked = [row.method for row in summarise(RICH)]
    with Visit(chromium, folder / "rich.html", width, "light") as visit:
        page = visit.page
        assert page.evaluate(ORDER) == ranked
        for title, field, falls in COLUMNS:
            button = page.get_by_role("button", name=title, exact=True)
            head = page.locator("th", has=button)
            assert head.get_attribute("aria-sort") is None
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


def test_the_table_is_sorted_by_keyboard_and_by_name(chromium: Any, folder: Path) -> None:
    with Visit(chromium, folder / "rich.html", 1200, "light") as visit:
        page = visit.page
        page.get_by_role("button", name="Dark").focus()
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent") == "Method":
                break
        assert page.evaluate("document.activeElement.className") == "sort"
        names = sorted(row.method for row in summarise(RICH))
        page.keyboard.press("Enter")
        assert page.evaluate(ORDER) == names
        page.keyboard.press("Space")
        assert page.evaluate(ORDER) == names[::-1]
        # Another column starts anew.
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate(ORDER) == sorted_by("score_mean", falling=True)
        assert page.locator("[aria-sort]").count() == 1
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outline) == "solid"


# ------------------------------------------------------------------ light and dark

BACK = "getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["rich", "across"])
def test_the_theme_is_switched_both_ways_and_text_stands_out(
    chromium: Any, folder: Path, scheme: str, name: str
) -> None:
    with Visit(chromium, folder / f"{name}.html", 1000, scheme) as visit:
        page = visit.page
        button = page.get_by_role("button", name="Dark")
        for dark in (scheme == "dark", scheme != "dark", scheme == "dark"):
            back = sum(page.evaluate(BACK)) / 3
            assert (back < 64) if dark else (back > 192)
            assert button.get_attribute("aria-pressed") == str(dark).lower()
            weakest = page.evaluate(CONTRASTS)
            assert weakest[0][0] >= 4.5, weakest
            drawn = page.evaluate(
                "getComputedStyle(document.querySelector('.wide svg .tick, .wide svg text')).fill"
            )
            lightness = sum(map(int, drawn.strip("rgb()").split(","))) / 3
            assert (lightness > 140) if dark else (lightness < 140)
            button.click()
        assert visit.problems == []


def test_the_theme_follows_the_room_until_it_is_chosen(chromium: Any, folder: Path) -> None:
    with Visit(chromium, folder / "rich.html", 1000, "light") as visit:
        page = visit.page
        button = page.get_by_role("button", name="Dark")
        page.emulate_media(color_scheme="dark")
        assert sum(page.evaluate(BACK)) / 3 < 64
        assert button.get_attribute("aria-pressed") == "true"
        button.click()
        page.emulate_media(color_scheme="light")
        page.emulate_media(color_scheme="dark")
        assert sum(page.evaluate(BACK)) / 3 > 192
        assert button.get_attribute("aria-pressed") == "false"


def test_a_page_without_its_script_shows_everything_and_no_button(
    chromium: Any, folder: Path
) -> None:
    for width in (1200, 360):
        context = chromium.new_context(
            java_script_enabled=False, viewport={"width": width, "height": 800}
        )
        page = context.new_page()
        page.goto((folder / "rich.html").as_uri())
        assert page.get_by_role("button").count() == 0
        assert page.locator("table.ranking tbody tr").count() == 4
        assert page.get_by_text("What the words mean", exact=True).is_visible()
        context.close()


def test_no_other_script_runs_even_if_one_gets_in(chromium: Any, folder: Path) -> None:
    text = (folder / "rich.html").read_text(encoding="utf-8")
    broken = folder / "broken-in.html"
    broken.write_text(text.replace("</main>", "<script>document.title = 'in'</script></main>"))
    with Visit(chromium, broken, 1000, "light") as visit:
        assert visit.page.title() != "in"
        assert any("Content Security Policy" in problem for problem in visit.problems)
        assert visit.page.get_by_role("button", name="Dark").count() == 1


def test_a_link_into_something_folded_opens_it(chromium: Any, folder: Path) -> None:
    with Visit(chromium, folder / "hard.html", 1200, "light") as visit:
        page = visit.page
        group = page.locator("[id='gcs-3--calibration']")
        assert group.get_attribute("open") is None
        page.get_by_label("On this page").get_by_role("link", name="Calibration").first.click()
        assert group.get_attribute("open") is not None
        assert abs(group.bounding_box()["y"]) < 100
        assert visit.problems == []


# ------------------------------------------------------------------ paper


def test_paper_gets_light_colours_everything_open_and_no_buttons(
    chromium: Any, folder: Path
) -> None:
    with Visit(chromium, folder / "hard.html", 718, "dark") as visit:
        page = visit.page
        folded = page.locator("details:not([open])").count()
        assert folded > 5
        page.get_by_role("button", name="Dark").click()
        page.get_by_role("button", name="Dark").click()
        page.emulate_media(media="print")
        ink = page.evaluate("getComputedStyle(document.querySelector('h1')).color")
        assert sum(map(int, ink.strip("rgb()").split(","))) < 200
        assert not page.locator("button.theme").is_visible()
        hidden = page.evaluate(
            "[...document.querySelectorAll('section:not(.harder) > details > :not(summary)')]"
            ".filter(e => !e.checkVisibility({contentVisibilityAuto: true})"
            " || !e.getBoundingClientRect().height).length"
        )
        assert hidden == 0
        # Of harder conditions verdict and ranking are printed, and what the reader opened.
        harder = page.locator("section.harder")
        assert harder.count() == 4
        for number in range(4):
            one = harder.nth(number)
            assert one.locator(".finding").is_visible()
            assert one.locator("table.ranking").is_visible()
            assert one.locator("figure:visible, details:visible").count() == 0
        harder.first.locator("details").last.evaluate("e => { e.open = true }")
        assert harder.first.locator("details:visible").count() == 1
        assert harder.first.locator("figure:visible").count() > 0
        harder.first.locator("details").last.evaluate("e => { e.open = false }")
        # A4 upright, without its margins, is 182 mm or 688 pixels wide: no table is cut off.
        page.set_viewport_size({"width": 688, "height": 900})
        widest = page.evaluate(
            "Math.max(...[...document.querySelectorAll('table, svg, pre, .maps')]"
            ".map(e => e.getBoundingClientRect().right))"
        )
        assert widest <= 689
        page.emulate_media(media="screen")
        assert page.locator("details:not([open])").count() == folded


# Headings in print that do not share an unbreakable block with the drawing or table below them.
STRANDED = """() => {
  const kept = one => {
    for (; one; one = one.parentElement)
      if (getComputedStyle(one).breakInside === 'avoid') return one;
  };
  const names = 'summary, .printed, .examples h4, figure h3, figure h4';
  const heads = [...document.querySelectorAll(names)];
  return heads.filter(one => one.checkVisibility() && one.getBoundingClientRect().height)
    .filter(one => !kept(one)?.querySelector('svg, td, li'))
    .map(one => one.textContent.trim());
}"""


def test_headings_are_printed_with_what_they_are_about(chromium: Any, folder: Path) -> None:
    with Visit(chromium, folder / "hard.html", 718, "light") as visit:
        page = visit.page
        assert page.locator(".printed:visible").count() == 0
        page.emulate_media(media="print")
        assert page.evaluate(STRANDED) == []
        style = "e => getComputedStyle(e).breakInside"
        assert page.locator("section.harder").first.evaluate(style) == "avoid"
        shown = page.locator(".printed:visible").all_inner_texts()
        assert {"Robustness", "Label noise", "Virtual graphs"} <= set(shown)
        assert page.locator("section:not(.harder) summary:visible").count() == 0


def test_a_damaged_address_does_no_harm(chromium: Any, folder: Path) -> None:
    with Visit(chromium, folder / "rich.html", 1000, "light") as visit:
        page = visit.page
        page.evaluate("location.hash = '%E0%A4%A'")
        page.goto((folder / "rich.html").as_uri() + "#%E0%A4%A")
        page.reload()
        assert page.get_by_role("button", name="Dark").count() == 1
        assert [one for one in visit.problems if not one.startswith("file:")] == []


def test_harder_conditions_add_few_pages(chromium: Any, folder: Path) -> None:
    def pages(name: str) -> int:
        with Visit(chromium, folder / f"{name}.html", 718, "light") as visit:
            return len(re.findall(rb"/Type\s*/Page\b", visit.page.pdf(format="A4")))

    # Two models under three conditions: four sections of a verdict and a table, and two figures.
    assert pages("hard") <= 2 * pages("rich") + 8


def test_the_pdf_holds_the_ranking(chromium: Any, folder: Path, tmp_path: Path) -> None:
    with Visit(chromium, folder / "rich.html", 718, "dark") as visit:
        content = visit.page.pdf(path=tmp_path / "report.pdf", format="A4")
        assert content.startswith(b"%PDF")
        pages = len(re.findall(rb"/Type\s*/Page\b", content))
        assert 4 <= pages <= 30
        assert visit.problems == []


# ------------------------------------------------------------------ drawings as files


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_drawing_by_itself_is_readable_in_an_image(
    chromium: Any, folder: Path, scheme: str
) -> None:
    names = ["rich-figures.html"]
    drawings = sorted((folder / "rich-figures").glob("gcs-3-*.svg"))
    assert len(drawings) > 10
    images = "".join(f'<img src="rich-figures/{path.name}" alt="{path.stem}">' for path in drawings)
    (folder / names[0]).write_text(f"<!doctype html><title>x</title>{images}")
    context = chromium.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto((folder / names[0]).as_uri())
    broken = page.evaluate(
        "[...document.images].filter(e => !e.complete || !e.naturalWidth).map(e => e.alt)"
    )
    assert broken == []
    page.goto((folder / "rich-figures" / "gcs-3-scores.svg").as_uri())
    back = page.evaluate(
        "getComputedStyle(document.documentElement).backgroundColor.match(/[0-9]+/g).map(Number)"
    )
    assert (sum(back) / 3 < 64) == (scheme == "dark")
    fill = page.evaluate("getComputedStyle(document.querySelector('.tick')).fill")
    lightness = sum(map(int, fill.strip("rgb()").split(","))) / 3
    assert (lightness > 140) == (scheme == "dark")
    context.close()
