"""The file: its numbers are the page's, it refers to nothing, and no name can break out of its place."""

import json
import re
import sys
from dataclasses import asdict, replace

import helpers.fabricated_page as fabricated
import pytest
from helpers.html_pages import read_page

from smc_transformer.report.page import write_page
from smc_transformer.report.page.data import SeriesPage, TargetPage, plain
from smc_transformer.report.page.write import SCRIPTS, TEMPLATES, embedded_json, render_page


def test_the_file_holds_the_numbers_and_refers_to_nothing(tmp_path):
    page = replace(fabricated.page(), title=fabricated.NASTY)
    path = write_page(page, tmp_path / "folder" / "report.html")
    text = path.read_text(encoding="utf-8")
    document = read_page(text)
    assert document.references == ["data:,"]
    assert len(document.scripts) == 2
    assert json.loads(document.scripts[0]) == json.loads(json.dumps(asdict(page)))
    assert "http" not in re.sub(r"http://www.w3.org/2000/svg|http-equiv", "", text)
    assert len(document.identifiers) == len(set(document.identifiers))
    assert document.scripts[1].count("</") == 0


def test_what_few_ask_for_is_behind_a_fold():
    text = render_page(fabricated.page())
    for name, title in (("health", "Particle health"), ("settings", "Settings")):
        assert re.search(rf'<details id="{name}" class="fold">\s*<summary>{title}</summary>', text)  # not open


def test_embedded_numbers_cannot_end_their_element():
    page = fabricated.page(
        ["</SCRIPT ><!--<script>", "\u2028 \u00e9 \ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16")]
    )
    text = embedded_json(page)
    assert not set("<>&") & set(text)
    assert text.isascii()
    assert [series["name"] for series in json.loads(text)["series"]] == [series.name for series in page.series]


def test_numbers_that_json_cannot_hold_are_refused():
    page = fabricated.page(["a"])
    target = replace(page.series[0].targets[0], mean=[float("nan")])
    with pytest.raises(ValueError, match="JSON"):
        render_page(replace(page, series=[replace(page.series[0], targets=[target])]))


def test_plain_numbers():
    assert plain(1 / 3) == 0.3333333
    assert plain(float("nan")) is None
    assert plain(float("-inf")) is None
    assert plain(-12345678.9) == -12345680.0


def test_every_template_is_used():
    scripts = {path.stem for path in (TEMPLATES / "script").iterdir()}
    assert scripts == set(SCRIPTS)
    assert {path.name for path in TEMPLATES.iterdir()} == {"page.html.j2", "style.css", "script"}


def bare_page(n_past, horizon):
    """A page with nothing but a forecast: no history, backtest, paths, health, attention or settings."""
    page = fabricated.page(["a"])
    target = TargetPage(
        history=[1.0] * n_past,
        mean=[2.0] * horizon,
        quantiles=[[1.0 + 0.3 * place] * horizon for place in range(7)],
    )
    times = list(range(n_past + horizon))
    return replace(page, series=[SeriesPage("a", times[:n_past], times[n_past:], [target])], backtest=[], settings=[])


@pytest.mark.parametrize(("n_past", "horizon"), [(0, 1), (1, 1), (0, 5), (3, 1)])
def test_a_bare_page_opens_too(browser, tmp_path, n_past, horizon):
    from helpers.drawn import open_page
    from selenium.webdriver.common.by import By

    open_page(browser, write_page(bare_page(n_past, horizon), tmp_path / "bare.html"))
    assert browser.get_log("browser") == []
    assert len(browser.find_elements(By.CSS_SELECTOR, '#fan [data-mark="band"] path')) == 3
    assert "NaN" not in browser.find_element(By.CSS_SELECTOR, "#fan svg").get_attribute("outerHTML")
    for name in ("variance", "attention", "health"):
        assert not browser.find_element(By.ID, name).is_displayed()


def test_without_jinja_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"the page needs jinja2: pip install 'smc-transformer\[report\]'"):
        render_page(fabricated.page())
