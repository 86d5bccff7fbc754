"""The page in a real browser, with the network off. `make test-browser` runs it; it needs the system's Chromium."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
WIDTHS = {"phone": (390, 844), "desk": (1280, 800)}
LONGEST = 120_000  #: milliseconds: a guard against hangs

if CHROMIUM is None:
    pytest.skip("there is no Chromium; on Debian: apt install chromium", allow_module_level=True)
pytest.importorskip("playwright", reason="no driver; pip install -e .[browser]")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install -e .[browser]")

from playwright.sync_api import Browser, Page, sync_playwright  # noqa: E402

from edgc.report.site.page import write_page, write_site  # noqa: E402


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of everything that is published."""
    results = tmp_path_factory.mktemp("results")
    (results / "published").symlink_to(ROOT / "results/published")
    return write_site(results)[0].as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = driver.chromium.launch(executable_path=CHROMIUM, args=options)
        yield started
        started.close()


@pytest.fixture(params=WIDTHS)
def page(request: pytest.FixtureRequest, browser: Browser, address: str) -> Iterator[Page]:
    """The page, opened with the network off. Whatever the console says or the page asks for fails the test."""
    width, height = WIDTHS[request.param]
    context = browser.new_context(viewport={"width": width, "height": height}, offline=True, reduced_motion="reduce")
    context.set_default_timeout(LONGEST)
    opened = context.new_page()
    heard: list[str] = []
    opened.on("console", lambda message: heard.append(message.text))
    opened.on("pageerror", lambda error: heard.append(str(error)))
    opened.on("request", lambda asked: heard.append(asked.url) if asked.url.startswith(("http", "ws")) else None)
    opened.goto(address)
    opened.wait_for_selector(".chart[data-drawn]")
    yield opened
    context.close()
    assert not heard


def on_screen(page: Page, selector: str) -> bool:
    """Whether all of it is within the window as it is scrolled now."""
    box = page.locator(selector).bounding_box()
    size = page.viewport_size
    assert box is not None
    assert size is not None
    return box["y"] >= 0 and box["y"] + box["height"] <= size["height"]


def test_a_newcomer_finds_whether_edgc_pays_at_200_mbit_and_what_it_costs(page: Page) -> None:
    """In three clicks at most (here two: a method and a link) and on the first screen."""
    page.select_option("#picker select[name=method]", label="EDGC")
    page.select_option("#picker select[name=rate]", label="200 Mbit/s")
    told = page.inner_text("#picked")
    assert re.search(r"EDGC at 200 Mbit/s .*% (more|less) time", told)
    assert re.search(r"loss gap is [+−]\d", told)
    assert page.evaluate("scrollY") == 0
    assert on_screen(page, "#picked")


def test_nothing_is_wider_than_the_screen(page: Page) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_tables_sort_and_filter(page: Page) -> None:
    column = "#methods tbody td:nth-child(2)"
    head = page.locator("#methods thead th").nth(1)

    def numbers() -> list[float]:
        texts = page.locator(column).all_inner_texts()
        return [float(text.split()[0].replace("−", "-")) for text in texts]

    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert numbers() == sorted(numbers())
    assert head.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")
    assert numbers() == sorted(numbers(), reverse=True)
    every = page.locator("#methods tbody tr").count()
    page.fill("#methods input[type=search]", "powersgd")
    left = page.locator("#methods tbody tr:visible").all_inner_texts()
    assert 0 < len(left) < every
    assert all("PowerSGD" in text for text in left)


def test_a_link_opens_an_experiment_and_shows_all_columns(page: Page) -> None:
    page.evaluate("location.hash = '#t-links-nano-links'")
    folded = page.locator("#t-links-nano-links")
    heads = folded.locator("thead th:visible")
    heads.first.wait_for()
    first = heads.count()
    assert first <= 8
    folded.get_by_role("button", name="All columns").click()
    assert heads.count() > first


def test_the_form_answers_and_gives_the_command(page: Page) -> None:
    page.select_option("#question select[name=model]", "gpt2-1.3b")
    page.select_option("#question select[name=cluster]", "h100x64")
    page.select_option("#question select[name=nodes]", "16")
    page.select_option("#question select[name=link]", "25gbit")
    page.select_option("#question select[name=precision]", "bf16")
    told = page.inner_text("#answer")
    command = "edgc plan --model gpt2-1.3b --cluster h100x64 --nodes 16 --link 25gbit --precision bf16"
    assert command in told
    assert re.search(r"saves [\d.−]+ % to [\d.−]+ % of the time and is faster on", told)
    assert "not known" in page.inner_text("#answer-table"), "no run measured what some of them lose"
    page.evaluate("document.querySelector('#ask').scrollIntoView()")
    assert on_screen(page, "#answer p:first-child")
    page.select_option("#question select[name=margin]", "0.005")
    stricter = page.inner_text("#answer")
    assert command in stricter
    assert stricter.partition(command)[0] != told.partition(command)[0], "the margin decides which method is named"
    page.select_option("#question select[name=link]", "400gbit")
    page.select_option("#question select[name=latency_ms]", "20")
    assert "Not known: this was not computed beforehand" in page.inner_text("#answer")


@pytest.mark.parametrize(("experiment", "table"), [("quality", "accuracy"), ("links-every-step", "links")])
def test_a_csv_comes_out_with_five_digits_of_what_was_published(page: Page, experiment: str, table: str) -> None:
    """The second table has infinities."""
    page.evaluate(f"location.hash = '#t-{experiment}-{table}'")
    box = page.locator(f"#t-{experiment}-{table}")
    with page.expect_download() as loading:
        box.get_by_role("button", name="CSV").click()
    published = pd.read_csv(ROOT / f"results/published/{experiment}/tables/{table}.csv")
    pd.testing.assert_frame_equal(pd.read_csv(loading.value.path()), published, check_dtype=False, rtol=6e-5, atol=0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_an_accessibility_checker_finds_nothing(page: Page, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    page.evaluate("['#e-quality', '#t-quality-accuracy'].forEach((each) => { location.hash = each; })")
    page.locator("#t-quality-accuracy table").wait_for()
    found = axe.Axe().run(page).response["violations"]
    assert not [(each["id"], each["nodes"][0]["html"][:200]) for each in found]


def test_the_page_of_one_experiment_loads(browser: Browser, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "results/published/smoke", tmp_path / "smoke")
    opened = browser.new_page()
    heard: list[str] = []
    opened.on("pageerror", lambda error: heard.append(str(error)))
    opened.goto(write_page("smoke", tmp_path)[0].as_uri())
    opened.wait_for_selector(".chart[data-drawn]", timeout=LONGEST)
    assert not heard
    opened.close()
