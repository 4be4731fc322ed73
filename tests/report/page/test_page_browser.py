"""The page in Chromium: what is drawn is the page's numbers, whatever is clicked."""

import time

import helpers.fabricated_page as fabricated
import numpy as np
import pytest

from smc_transformer.report.page import write_page

pytest.importorskip("selenium", reason="selenium is not installed: pip install selenium")

from helpers.drawn import chart_of, milliseconds, open_page, requests
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By

LEVELS = {95: (0, 6), 80: (1, 5), 50: (2, 4)}
"""Places of the ends of intervals among the quantiles."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def few(folder):
    page = fabricated.page()
    return page, write_page(page, folder / "few.html")


@pytest.fixture(scope="module")
def two_targets(folder):
    page = fabricated.page(["a", "b"], n_targets=2, dated=False)
    return page, write_page(page, folder / "two.html")


@pytest.fixture(scope="module")
def many(folder):
    page = fabricated.page([f"Sensor {number:03d}" for number in range(100)])
    return page, write_page(page, folder / "many.html")


def check_fan(browser, page, series, place=0):
    """Whether the fan chart shows a series."""
    target = series.targets[place]
    chart = chart_of(browser, "fan")
    past, ahead = milliseconds(series.history_times), milliseconds(series.forecast_times)
    (history,) = chart.marks("history")
    assert history.get_attribute("data-series") == series.name
    assert history.get_attribute("data-target") == page.targets[place]
    chart.check_line(history, past, target.history)
    chart.check_line(chart.marks("mean")[0], ahead, target.mean)
    chart.check_line(chart.marks("median")[0], ahead, target.quantiles[3])
    assert len(chart.marks("band")) == 3
    for level, (lower, upper) in LEVELS.items():
        (band,) = chart.marks("band", level=level)
        chart.check_area(band, ahead, target.quantiles[lower], target.quantiles[upper])
    joined = chart.marks("join")  # bands, mean and median open from the last value, if there is one
    last = target.history[-1] if target.history else None
    assert len(joined) == (5 if last is not None else 0)
    if joined:
        between = [past[-1], ahead[0]]
        chart.check_line(joined[3], between, [last, target.mean[0]])
        chart.check_area(joined[0], between, [last, target.quantiles[0][0]], [last, target.quantiles[6][0]])
    return chart


def choose(browser, name):
    find = "return [...document.querySelectorAll('#series-list li')].find(one => one.dataset.series === arguments[0])"
    browser.execute_script(find, name).click()


def test_clicking_between_series_draws_each_ones_numbers(browser, few):
    page, path = few
    open_page(browser, path)
    check_fan(browser, page, page.series[0])
    for series in reversed(page.series):
        choose(browser, series.name)
        check_fan(browser, page, series)
        assert browser.find_element(By.ID, "series-name").text == series.name
        chosen = browser.find_elements(By.CSS_SELECTOR, '#series-list [aria-selected="true"]')
        assert [option.get_attribute("data-series") for option in chosen] == [series.name]


def test_missing_values_are_gaps_and_a_value_between_gaps_is_a_dot(browser, few):
    _, path = few
    open_page(browser, path)
    history = chart_of(browser, "fan").marks("history")[0]
    (dot,) = history.shapes("circle")
    assert int(dot.get_attribute("data-index")) == fabricated.ALONE
    assert history.shapes("path")[0].get_attribute("d").count("M") == 2


def test_sample_paths_come_and_go(browser, few):
    page, path = few
    open_page(browser, path)
    series = page.series[0]
    assert chart_of(browser, "fan").marks("path") == []
    browser.find_element(By.ID, "paths").click()
    chart = check_fan(browser, page, series)
    drawn = chart.marks("path")
    assert len(drawn) == fabricated.N_PATHS
    for mark, values in zip(drawn, series.targets[0].paths, strict=True):
        chart.check_line(mark, milliseconds(series.forecast_times), values)
    browser.find_element(By.ID, "paths").click()
    assert chart_of(browser, "fan").marks("path") == []


def test_readout_under_the_pointer_and_by_keyboard(browser, few):
    page, path = few
    open_page(browser, path)
    series = page.series[0]
    chart = chart_of(browser, "fan")
    slope, low, start = chart.x
    at = start + (milliseconds(series.forecast_times)[4] - low) / slope
    box = chart.svg.rect
    ActionChains(browser).move_to_element_with_offset(chart.svg, at - box["width"] / 2, 0).perform()
    readout = browser.find_element(By.CSS_SELECTOR, "#fan .readout")
    target = series.targets[0]
    assert "6 Mar 2024, 04:00 (step 5)" in readout.text
    for value in (target.mean[4], *(quantile[4] for quantile in target.quantiles)):
        assert f"{value:.4g}" in readout.text
    (dot,) = chart_of(browser, "fan").marks("cursor")[0].shapes("circle")
    np.testing.assert_allclose(chart.value("y", dot.get_attribute("cy")), target.quantiles[3][4], atol=1e-6)
    chart.svg.send_keys(Keys.ARROW_RIGHT)
    assert "(step 6)" in readout.text
    for _ in range(6):
        chart.svg.send_keys(Keys.ARROW_LEFT)
    assert "observed" in readout.text
    chart.svg.send_keys(Keys.ESCAPE)
    assert not readout.is_displayed()


def test_a_missing_value_says_so(browser, few):
    _, path = few
    open_page(browser, path)
    svg = chart_of(browser, "fan").svg
    svg.send_keys(Keys.HOME)
    for _ in range(6):
        svg.send_keys(Keys.PAGE_DOWN)
    assert "missing" in browser.find_element(By.CSS_SELECTOR, "#fan .readout").text


def test_choosing_a_target_draws_its_numbers(browser, two_targets):
    page, path = two_targets
    open_page(browser, path)
    for place, name in ((1, "load <kW>"), (0, "temperature")):
        (button,) = (
            one
            for one in browser.find_elements(By.CSS_SELECTOR, "#targets button")
            if one.get_attribute("data-target") == name
        )
        button.click()
        check_fan(browser, page, page.series[0], place)
        check_backtest(browser, page.backtest[place])


def test_charts_of_a_series(browser, few):
    page, path = few
    open_page(browser, path)
    for series in page.series[:2]:
        choose(browser, series.name)
        target, steps = series.targets[0], np.arange(1, fabricated.HORIZON + 1)
        variance = chart_of(browser, "variance")
        variance.check_area(variance.marks("between")[0], steps, np.zeros(len(steps)), target.between)
        total = np.add(target.between, target.within)
        variance.check_area(variance.marks("within")[0], steps, target.between, total)
        if not browser.find_element(By.CSS_SELECTOR, "#health figure").is_displayed():
            browser.find_element(By.CSS_SELECTOR, "#health summary").click()
        health = chart_of(browser, "health")
        times = milliseconds(series.health.times)
        health.check_line(health.marks("ess")[0], times, series.health.ess)
        health.check_line(health.marks("unique")[0], times, series.health.unique)
        check_attention(browser, series.attention)


def check_attention(browser, attention):
    chart = chart_of(browser, "attention")
    marks = chart.marks("attention")
    assert len(marks) == len(attention.mean)
    for index in (0, len(marks) // 2, len(marks) - 1):
        bar = marks[index].shapes("rect")[0]
        whisker = marks[index].shapes("line")[0]
        top, height, left, width = (float(bar.get_attribute(name)) for name in ("y", "height", "x", "width"))
        tolerance = {"rtol": 0, "atol": 2 * chart.tolerance("y")}
        np.testing.assert_allclose(chart.value("y", top), attention.mean[index], **tolerance)
        np.testing.assert_allclose(chart.value("y", top + height), 0, **tolerance)
        back = index - len(marks) + 1
        np.testing.assert_allclose(chart.value("x", left + width / 2), back, atol=3 * chart.tolerance("x"))
        ends = [chart.value("y", whisker.get_attribute(name)) for name in ("y1", "y2")]
        np.testing.assert_allclose(ends, (attention.lower[index], attention.upper[index]), **tolerance)


def check_backtest(browser, backtest):
    calibration = chart_of(browser, "calibration")
    curve = calibration.marks("calibration")[0]
    calibration.check_line(curve, backtest.calibration_levels, backtest.calibration_coverage)
    coverage = chart_of(browser, "coverage")
    for scores in backtest.levels:
        (line,) = coverage.marks("coverage", level=f"{scores.level:g}")
        coverage.check_line(line, np.arange(1, fabricated.HORIZON + 1), scores.picp_by_step)
    pit = chart_of(browser, "pit")
    tops = [pit.value("y", bar.get_attribute("y")) for bar in pit.marks("pit")]
    np.testing.assert_allclose(tops, backtest.pit, rtol=0, atol=pit.tolerance("y"))


def test_charts_and_scores_of_the_backtest(browser, few):
    page, path = few
    open_page(browser, path)
    check_backtest(browser, page.backtest[0])
    table = browser.find_element(By.ID, "scores-table").text
    for scores in page.backtest[0].levels:
        assert f"{100 * scores.picp:.1f} %" in table
        assert f"{scores.winkler:.4g}" in table
    facts = browser.find_element(By.ID, "backtest-facts").text
    assert all(text in facts for text in ("7,200", "0.5432", "1.235", "4.321"))


def test_forecast_as_numbers(browser, few):
    page, path = few
    open_page(browser, path)
    browser.find_element(By.CSS_SELECTOR, "#fan summary").click()
    rows = browser.find_elements(By.CSS_SELECTOR, "#forecast-table tbody tr")
    assert len(rows) == fabricated.HORIZON
    target = page.series[0].targets[0]
    cells = [cell.text.replace("\u2212", "-") for cell in rows[3].find_elements(By.CSS_SELECTOR, "td")]
    order = [target.mean, *(target.quantiles[place] for place in (3, 2, 4, 1, 5, 0, 6))]
    assert cells == [f"{values[3]:.4g}" for values in order]


def test_names_are_text_whatever_they_hold(browser, few):
    _, path = few
    open_page(browser, path)
    choose(browser, fabricated.NASTY)
    assert browser.find_element(By.ID, "series-name").text == fabricated.NASTY
    assert browser.find_elements(By.CSS_SELECTOR, "img") == []
    assert not browser.find_element(By.CSS_SELECTOR, ".settings").is_displayed()  # until it is asked for
    browser.find_element(By.CSS_SELECTOR, "#settings summary").click()
    assert browser.find_element(By.CSS_SELECTOR, ".settings div:last-child dd").text == fabricated.NASTY


@pytest.mark.parametrize("kind", ["few", "two_targets", "many"])
def test_no_request_leaves_the_file_and_the_console_is_silent(browser, request, kind):
    page, path = request.getfixturevalue(kind)
    open_page(browser, path)
    for series in page.series[:3]:
        choose(browser, series.name)
    browser.find_element(By.ID, "paths").click()
    browser.find_element(By.ID, "theme").click()
    chart_of(browser, "fan").svg.send_keys(Keys.ARROW_LEFT)
    asked = {url for url in requests(browser) if not url.startswith("data:")}
    assert asked == {path.as_uri()}
    assert browser.get_log("browser") == []


def test_a_hundred_series_stay_quick(browser, many):
    page, path = many
    assert path.stat().st_size < 4e6
    begun = time.perf_counter()
    open_page(browser, path)
    assert time.perf_counter() - begun < 30  # a second on an idle machine
    switching = """
        const options = document.querySelectorAll("#series-list [role=option]"), begun = performance.now();
        for (let number = 1; number <= 20; number += 1) options[number].click();
        return (performance.now() - begun) / 20;
    """
    assert browser.execute_script(switching) < 1000  # milliseconds; about 20 on an idle machine
    check_fan(browser, page, page.series[20])


def test_search_and_keyboard_choose_series(browser, many):
    page, path = many
    open_page(browser, path)
    search = browser.find_element(By.ID, "series-search")
    search.send_keys("sensor 07")
    options = browser.find_elements(By.CSS_SELECTOR, "#series-list [role=option]")
    shown = browser.execute_script(
        "return arguments[0].filter(one => one.offsetParent).map(one => one.textContent)", options
    )
    assert shown == [f"Sensor {number:03d}" for number in range(70, 80)]
    search.send_keys(Keys.ENTER)
    check_fan(browser, page, page.series[70])
    search.send_keys(Keys.ARROW_DOWN)
    check_fan(browser, page, page.series[71])
    search.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.DELETE)
    listing = browser.find_element(By.ID, "series-list")
    listing.send_keys(Keys.END)
    check_fan(browser, page, page.series[99])
    listing.send_keys(Keys.ARROW_UP)
    check_fan(browser, page, page.series[98])
    assert listing.get_attribute("aria-activedescendant") == "series-98"


def test_few_series_need_no_search(browser, few):
    _, path = few
    open_page(browser, path)
    assert not browser.find_element(By.ID, "series-search").is_displayed()


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_sticks_out_sideways(browser, many, width):
    page, path = many
    open_page(browser, path, width=width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    check_fan(browser, page, page.series[0])


def test_charts_follow_the_width(browser, few):
    page, path = few
    open_page(browser, path, width=1280)
    wide = chart_of(browser, "fan").svg.rect["width"]
    narrow = {"width": 600, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)
    deadline = time.monotonic() + 10
    width = "return document.querySelector('#fan svg').viewBox.baseVal.width"
    while browser.execute_script(width) > 600 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert chart_of(browser, "fan").svg.rect["width"] < wide
    check_fan(browser, page, page.series[0])


def test_dark_by_the_system_and_by_the_button(browser, few):
    _, path = few
    colour = "return getComputedStyle(document.body).backgroundColor"
    found = {}
    for scheme in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        open_page(browser, path)
        found[scheme] = browser.execute_script(colour)
        browser.find_element(By.ID, "theme").click()
        found[f"{scheme}, other"] = browser.execute_script(colour)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert found["light"] == found["dark, other"] != found["dark"] == found["light, other"]


def test_print_is_light_and_without_controls(browser, few):
    _, path = few
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    )
    open_page(browser, path, width=720)
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not browser.find_element(By.ID, "series-list").is_displayed()
    assert browser.find_element(By.CSS_SELECTOR, "#fan svg").is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
