"""The report in a real Chromium: it opens clean, requests nothing, and does what it shows."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from report_material import recording, result, study, write

from codesgc.cli import main
from codesgc.zoo.published import TABLES

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
ARGUMENTS += ["--disable-component-update", "--disable-sync"]
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"
SETTLED = "() => document.querySelectorAll('#training .main-svg').length > 0"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert Path(CHROMIUM).exists(), f"{CHROMIUM} is missing: install Debian's package chromium, as 'make test' does"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> str:
    """The address of a page with two graphs, all models of both tables, two recordings and a study."""
    folder = tmp_path_factory.mktemp("results")
    models = list(dict.fromkeys([*TABLES["2"], *TABLES["3"], "SGC"]))
    cells = [result(d, m, mean=80 + 7 * i % 13) for d in ("texas", "cornell") for i, m in enumerate(models)]
    write(folder, cells=cells, one=recording(), two=recording("H-Tucker"), study=study())
    target = folder / "report.html"
    assert main(["report", str(folder), "-o", str(target)]) == 0
    return target.as_uri()


class Opened:
    """A page, and what happened in it that should not."""

    def __init__(self, browser: Browser, address: str, **options) -> None:
        options.setdefault("viewport", {"width": 1280, "height": 900})
        self.context = browser.new_context(**options)
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(address)
        self.page.wait_for_function("() => document.querySelector('#runs .main-svg') !== null")

    def __enter__(self) -> Page:
        return self.page

    def __exit__(self, *_: object) -> None:
        own = [url for url in self.requests if not url.startswith(("file://", "data:", "blob:"))]
        files = [url for url in self.requests if url.startswith("file://")]
        self.context.close()
        assert (self.complaints, own, len(files)) == ([], [], 1)


READ = "cells => cells.map(cell => cell.dataset.value ?? '')"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_opens_clean_requests_nothing_and_fits(browser, report, width, scheme):
    viewport = {"width": width, "height": 844}
    with Opened(browser, report, viewport=viewport, color_scheme=scheme, has_touch=width < 500) as page:
        page.wait_for_function(SETTLED)
        assert page.evaluate("document.documentElement.dataset.theme") == scheme
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        outside = page.evaluate(
            "() => [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') &&"
            " e.getBoundingClientRect().right > innerWidth + 1 && !e.closest('.sr') && !e.closest('svg')).length"
        )
        assert outside == 0
        assert len(page.query_selector_all(".js-plotly-plot")) > 10


def test_a_click_on_a_header_sorts_and_another_turns_it_round(browser, report):
    with Opened(browser, report) as page:

        def read(i: int) -> list[str]:
            return page.locator("table.sortable").first.locator(f"tbody tr > :nth-child({i + 1})").evaluate_all(READ)

        head = page.locator("table.sortable").first.locator("thead button")
        assert read(0) == ["texas", "cornell"]
        head.nth(0).click()
        assert read(0) == ["cornell", "texas"]
        head.nth(0).click()
        assert read(0) == ["texas", "cornell"]
        head.nth(3).click()
        values = [float(value) for value in read(3)]
        assert values == sorted(values, reverse=True)
        assert page.locator("th[aria-sort=descending]").count() == 1


def test_hovering_a_curve_shows_its_values(browser, report):
    with Opened(browser, report) as page:
        page.locator("#response").scroll_into_view_if_needed()
        page.wait_for_timeout(200)
        box = page.locator("#response .nsewdrag").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.5)
        page.mouse.move(box["x"] + box["width"] * 0.41, box["y"] + box["height"] * 0.5)
        page.wait_for_selector("#response .hoverlayer text")
        shown = page.locator("#response .hoverlayer").text_content() or ""
        assert "output 0" in shown and "output 1" in shown and "eigenvalues" in shown
        figure = page.evaluate("document.getElementById('response').figure.data[1]")
        at = float(shown.split("output")[0].split("eigen")[0].replace("−", "-"))
        nearest = min(range(len(figure["x"])), key=lambda i: abs(figure["x"][i] - at))
        assert f"output 0 : {figure['y'][nearest]:.4g}".rstrip("0").rstrip(".") in shown.replace("−", "-")


def test_hovering_a_run_names_its_seed(browser, report):
    with Opened(browser, report) as page:
        page.locator("#runs").scroll_into_view_if_needed()
        point = page.locator("#runs .scatterlayer .trace").nth(1).locator(".point").first.bounding_box()
        assert point is not None
        page.mouse.move(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
        page.wait_for_selector("#runs .hoverlayer .hovertext")
        assert "seed 0" in (page.locator("#runs .hoverlayer").text_content() or "")


def test_another_graph_changes_the_figure(browser, report):
    with Opened(browser, report) as page:
        labels = page.locator("#runs-choice option").all_text_contents()
        assert labels == ["texas", "cornell"]
        before = page.locator("#runs .main-svg").first.inner_html()
        page.select_option("#runs-choice", label="cornell")
        page.wait_for_timeout(100)
        after = page.locator("#runs .main-svg").first.inner_html()
        assert before != after
        drawn = page.evaluate("document.getElementById('runs').data[3].x")
        assert drawn == page.evaluate("JSON.parse(document.getElementById('data').textContent).runs[1].data[3].x")


def test_another_model_changes_all_its_figures(browser, report):
    with Opened(browser, report) as page:

        def titles() -> list[str]:
            return page.locator("#factors figcaption").all_text_contents()

        first = titles()
        assert any(title.startswith("C (40 × 32") for title in first)
        curves = page.locator("#training .main-svg").first.inner_html()
        page.select_option("#model-choice", index=1)
        page.wait_for_timeout(200)
        assert any(title.startswith("G (") and "norm over" in title for title in titles()) and titles() != first
        assert page.locator("#training .main-svg").first.inner_html() != curves
        size = page.locator("#response .scatterlayer").first.inner_html()
        page.select_option("#response-choice", value="main")
        page.wait_for_timeout(100)
        assert page.locator("#response .scatterlayer").first.inner_html() != size


def test_study_shows_history_and_importance(browser, report):
    with Opened(browser, report) as page:
        assert page.locator("#study figcaption").all_text_contents() == ["History", "Importance of the settings"]
        assert page.locator("#study .js-plotly-plot .main-svg").count() >= 2
        assert "rank" in (page.locator("#study").text_content() or "")


def test_the_button_turns_light_into_dark_and_back(browser, report):
    with Opened(browser, report, color_scheme="light") as page:

        def colours() -> tuple[str, str]:
            return page.evaluate("getComputedStyle(document.body).backgroundColor"), page.locator(
                "#runs .xtitle"
            ).first.evaluate("e => getComputedStyle(e).fill")

        light = colours()
        page.click("#theme")
        dark = colours()
        assert light[0] != dark[0] and light[1] != dark[1]
        page.click("#theme")
        assert colours() == light


def test_it_prints(browser, report):
    with Opened(browser, report, color_scheme="dark") as page:
        printed = page.pdf(format="A4")
        assert printed.startswith(b"%PDF") and printed.count(b"/Type /Page\n") >= 3
        page.emulate_media(media="print")
        page.wait_for_timeout(100)
        assert not page.locator("#theme").is_visible()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_hostile_names_are_shown_and_not_run(browser, tmp_path):
    named = {"dataset": HOSTILE, "model": HOSTILE}
    learned = {**recording(), **named, "spectrum": {**recording()["spectrum"], "matrix": HOSTILE}}
    learned["layers"][0]["factors"] = {HOSTILE: learned["layers"][0]["factors"]["C"]}
    search = {**study(), **named}
    search["all"] = [{**trial, "params": {HOSTILE: trial["params"]["a"]}} for trial in search["all"]]
    write(tmp_path, one={**result(), **named, "versions": {HOSTILE: HOSTILE}}, two=learned, three=search)
    target = tmp_path / "report.html"
    assert main(["report", str(tmp_path), "-o", str(target), "--title", HOSTILE]) == 0
    with Opened(browser, target.as_uri()) as page:
        page.wait_for_function(SETTLED)
        page.wait_for_timeout(300)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main img").count() == 0
        assert page.locator("h1").text_content() == HOSTILE
        assert page.locator("#runs-choice option").text_content() == HOSTILE


def test_an_empty_report_opens(browser, tmp_path):
    target = tmp_path / "report.html"
    assert main(["report", str(tmp_path), "-o", str(target)]) == 0
    context = browser.new_context()
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(target.as_uri())
    assert complaints == [] and "nothing to show" in page.content()
    context.close()
