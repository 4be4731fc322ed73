"""The page for people on duty, in Chromium: it shows the server's numbers, and new ones by itself."""

import json
import time

import httpx
import pytest

pytest.importorskip("selenium", reason="selenium is not installed: pip install selenium")

from helpers.served import Process, row
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait


@pytest.fixture(scope="module")
def server(saved, tmp_path_factory):
    import shutil

    folder = shutil.copytree(saved, tmp_path_factory.mktemp("duty") / "model")
    process = Process(folder, "--alert", "99", "--horizon", 2)
    process.wait()
    rows = [row(name, time, value) for time in range(40, 52) for name, value in (("a", 0.2), ("b", 10.0), ("c", 20.0))]
    httpx.post(process.url + "/rows", json=rows, timeout=60).raise_for_status()
    httpx.post(process.url + "/rows", json=[row("b", 52, 400.0), row("a", 52, None)], timeout=60).raise_for_status()
    yield process
    process.process.kill()
    process.process.communicate()


def wait_for(browser, condition, seconds=30):
    return WebDriverWait(browser, seconds, poll_frequency=0.1).until(lambda _: condition())


def texts(browser, selector):
    return [one.text for one in browser.find_elements(By.CSS_SELECTOR, selector)]


def open_at(browser, url, width, height):
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    browser.get("about:blank")  # an address that differs in its hash only is not loaded again
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(url)


def test_the_most_surprising_series_is_first_and_new_rows_come_by_themselves(browser, server):
    open_at(browser, server.url, 1200, 800)
    wait_for(browser, lambda: texts(browser, "#surprising .who"))
    assert texts(browser, "#surprising .who")[0] == "b"
    assert "1 in" in texts(browser, "#surprising .odds")[0]
    assert "y 400 at 52" in texts(browser, "#surprising .what")[0]
    assert "38 rows taken" in browser.find_element(By.ID, "counts").text
    browser.find_element(By.CSS_SELECTOR, "#surprising button").click()
    wait_for(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "#chart svg"))
    assert browser.find_element(By.ID, "title").text == "b"
    n_values = len(browser.find_elements(By.CSS_SELECTOR, "#chart circle.value"))
    assert n_values == 13
    assert browser.find_elements(By.CSS_SELECTOR, "#chart circle.mark")
    httpx.post(server.url + "/rows", json=row("b", 53, 10.0), timeout=60).raise_for_status()
    wait_for(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "#chart circle.value")) == n_values + 1)
    wait_for(browser, lambda: "39 rows taken" in browser.find_element(By.ID, "counts").text)
    errors = [one["message"] for one in browser.get_log("browser") if one["level"] == "SEVERE"]
    assert errors == []


def test_the_chart_draws_the_numbers_of_the_server(browser, server):
    open_at(browser, server.url + "/#a", 1200, 800)
    wait_for(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "#chart .fanband"))
    history = httpx.get(server.url + "/history", params={"series": "a"}, timeout=60).json()
    values = [one["values"]["y"] for one in history["rows"]]
    assert values[-1] is None  # missing: no point
    circles = browser.find_elements(By.CSS_SELECTOR, "#chart circle.value")
    assert len(circles) == len(values) - 1
    # Each row but the first has the forecast that was made one row before: two levels of it.
    bands = browser.find_elements(By.CSS_SELECTOR, "#chart rect.band")
    assert len(bands) == 2 * (len(values) - 1)
    # Heights are in proportion to the numbers: by two points the scale is known, a band must agree with it.
    first = history["rows"][0]["forecast"][0]
    low, high = first["y-lo-95"], first["y-hi-95"]
    scale = browser.execute_script("""
        const texts = [...document.querySelectorAll("#chart text[text-anchor=end]")];
        return texts.map((one) => [Number(one.textContent.replace(/,/g, "")), Number(one.getAttribute("y")) - 4]);
    """)
    (value_0, y_0), (value_1, y_1) = scale[0], scale[-1]
    expected = [y_0 + (one - value_0) / (value_1 - value_0) * (y_1 - y_0) for one in (high, low)]
    top, height = (float(bands[0].get_attribute(name)) for name in ("y", "height"))
    assert [top, top + height] == pytest.approx(expected, abs=1.0)
    assert len(browser.find_elements(By.CSS_SELECTOR, "#chart .fanband")) == 3
    assert "of 16" in browser.find_element(By.ID, "health").text


def test_it_works_on_a_phone(browser, server):
    open_at(browser, server.url, 390, 800)
    wait_for(browser, lambda: texts(browser, "#surprising .who"))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    assert not browser.find_element(By.ID, "one").is_displayed()
    browser.find_element(By.CSS_SELECTOR, "#surprising button").click()
    wait_for(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "#chart svg"))
    assert not browser.find_element(By.ID, "list").is_displayed()
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    browser.find_element(By.ID, "back").click()
    wait_for(browser, lambda: browser.find_element(By.ID, "list").is_displayed())


def test_a_series_is_found_by_its_name_and_an_unknown_one_is_named(browser, server):
    open_at(browser, server.url, 1200, 800)
    field = browser.find_element(By.ID, "name")
    field.send_keys("c\n")
    wait_for(browser, lambda: "Last: 20 at 51" in browser.find_element(By.ID, "facts").text)
    field.clear()
    field.send_keys("<b>z\n")
    wait_for(browser, lambda: "unknown series" in browser.find_element(By.ID, "facts").text)
    assert browser.find_element(By.ID, "title").text == "<b>z"


def test_nothing_is_asked_of_other_hosts(browser, server):
    open_at(browser, server.url + "/#a", 1200, 800)
    wait_for(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "#chart svg"))
    time.sleep(0.2)
    asked = set()
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.add(message["params"]["request"]["url"])
    asked = {url for url in asked if url.startswith("http")}
    assert asked
    assert all(url.startswith(server.url + "/") for url in asked)


def test_a_token_is_asked_for(browser, saved, tmp_path):
    import shutil

    folder = shutil.copytree(saved, tmp_path / "model")
    (tmp_path / "tokens").write_text("0123456789abcdef-token\n")
    process = Process(folder, "--tokens", tmp_path / "tokens")
    try:
        process.wait()
        open_at(browser, process.url, 1200, 800)
        field = browser.find_element(By.ID, "token")
        wait_for(browser, field.is_displayed)
        field.send_keys("wrong-token-0123456789\n")
        wait_for(browser, lambda: "not known" in browser.find_element(By.ID, "wrong").text and field.is_displayed())
        field.clear()
        field.send_keys("0123456789abcdef-token\n")
        wait_for(browser, lambda: "0 rows taken" in browser.find_element(By.ID, "counts").text)
        assert not field.is_displayed()
    finally:
        process.process.kill()
        process.process.communicate()


def listed(browser):
    """The list at one moment: who, odds and what of each; it is drawn anew every second."""
    return browser.execute_script("""
        return [...document.querySelectorAll("#surprising li")].map(
          (one) => [".who", ".odds", ".what"].map((part) => one.querySelector(part).textContent));
    """)


def test_a_series_that_begins_is_listed_as_new_and_has_a_chart(browser, server):
    open_at(browser, server.url, 1200, 800)
    wait_for(browser, lambda: listed(browser))
    httpx.post(server.url + "/rows", json=row("<i>z", 7, 5.0), timeout=60).raise_for_status()
    wait_for(browser, lambda: ["<i>z", "new", "first row at 7"] in listed(browser))
    assert "4 series" in browser.find_element(By.ID, "counts").text
    browser.execute_script("""
        [...document.querySelectorAll("#surprising button")].find((one) => one.textContent.includes("<i>z")).click();
    """)
    wait_for(browser, lambda: browser.find_elements(By.CSS_SELECTOR, "#chart .fanband"))
    assert browser.find_element(By.ID, "facts").text == "Last: 5 at 7."
    assert len(browser.find_elements(By.CSS_SELECTOR, "#chart circle.value")) == 1
    httpx.post(server.url + "/rows", json=row("<i>z", 8, 5.1), timeout=60).raise_for_status()
    wait_for(browser, lambda: len(browser.find_elements(By.CSS_SELECTOR, "#chart circle.value")) == 2)
    wait_for(browser, lambda: "new" not in [odds for _, odds, _ in listed(browser)])
    errors = [one["message"] for one in browser.get_log("browser") if one["level"] == "SEVERE"]
    assert errors == []
