"""Reading charts back: from pixels through the axes to numbers."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

PIXEL = 0.006
"""Marks are placed to a hundredth of a pixel."""


SNAPSHOT = """
    const read = node => ({
      name: node.tagName, text: node.textContent, children: [...node.children].map(read),
      attributes: Object.fromEntries([...node.attributes].map(({ name, value }) => [name, value])),
    });
    const { width, height } = arguments[0].getBoundingClientRect();
    return { ...read(arguments[0]), width, height };
"""
"""An element and all in it, read at once: every question to the browser takes its time."""


@dataclass
class Mark:
    """An element as it was drawn."""

    read: dict

    @property
    def text(self):
        return self.read["text"]

    def get_attribute(self, name):
        return self.read["attributes"].get(name)

    def all(self):
        for child in map(Mark, self.read["children"]):
            yield child
            yield from child.all()

    def shapes(self, name):
        return [child for child in self.all() if child.read["name"] == name]


@dataclass
class Chart:
    """A chart and its axes."""

    svg: object

    def __post_init__(self):
        self.drawn = Mark(self.svg.parent.execute_script(SNAPSHOT, self.svg))
        self.x, self.y = (self._axis(name) for name in "xy")
        shown = self.drawn.read["width"] / self.drawn.read["height"]
        assert abs(shown - self._number("width") / self._number("height")) < 0.01  # not stretched

    def _number(self, name):
        return float(self.drawn.get_attribute(name))

    def _axis(self, name):
        (low, high), (start, end) = (
            json.loads(self.drawn.get_attribute(f"data-{name}-{part}")) for part in ("domain", "pixels")
        )
        return (high - low) / (end - start), low, start

    def value(self, name, pixel):
        slope, low, start = getattr(self, name)
        return low + slope * (np.asarray(pixel, float) - start)

    def tolerance(self, name):
        return abs(getattr(self, name)[0]) * PIXEL

    def marks(self, kind, **attributes):
        wanted = {"data-mark": kind, **{f"data-{name}": str(value) for name, value in attributes.items()}}
        return [
            mark
            for mark in self.drawn.all()
            if all(mark.get_attribute(name) == value for name, value in wanted.items())
        ]

    def polylines(self, mark):
        """Points of the lines of a mark, and its single dots, as (x, y) values."""
        lines = []
        for path in mark.shapes("path"):
            for piece in path.get_attribute("d").split("M")[1:]:
                points = np.array(re.findall(r"(-?[\d.]+) (-?[\d.]+)", piece), float)
                lines.append(np.column_stack((self.value("x", points[:, 0]), self.value("y", points[:, 1]))))
        for dot in mark.shapes("circle"):
            point = [float(dot.get_attribute(name)) for name in ("cx", "cy")]
            lines.append(np.array([[self.value("x", point[0]), self.value("y", point[1])]]))
        return sorted(lines, key=lambda line: line[0, 0])

    def check_line(self, mark, xs, ys):
        """Whether a mark is a line through given values, with a gap wherever one is missing."""
        values = np.array([np.nan if y is None else y for y in ys], float)
        assert json.loads(mark.get_attribute("data-values")) == list(ys)
        there = np.flatnonzero(~np.isnan(values))
        expected = [run for run in np.split(there, np.flatnonzero(np.diff(there) > 1) + 1) if len(run)]
        found = self.polylines(mark)
        assert [len(line) for line in found] == [len(run) for run in expected]
        for line, run in zip(found, expected, strict=True):
            np.testing.assert_allclose(line[:, 0], np.asarray(xs, float)[run], rtol=0, atol=self.tolerance("x"))
            np.testing.assert_allclose(line[:, 1], values[run], rtol=0, atol=self.tolerance("y"))

    def check_area(self, mark, xs, lower, upper):
        """Whether a mark is the area between two lines without gaps."""
        (outline,) = self.polylines(mark)
        n_steps = len(xs)
        assert len(outline) == 2 * n_steps
        above, below = outline[:n_steps], outline[n_steps:][::-1]
        for line, values in ((above, upper), (below, lower)):
            np.testing.assert_allclose(line[:, 0], xs, rtol=0, atol=self.tolerance("x"))
            np.testing.assert_allclose(line[:, 1], values, rtol=0, atol=self.tolerance("y"))

    def check_ticks(self):
        """Whether labels say what is at their place."""
        for tick in (text for text in self.drawn.shapes("text") if text.get_attribute("class") == "tick y"):
            said = tick.text.replace("\u2212", "-").replace(",", "")
            number = float(said.removesuffix(" %")) / 100 if said.endswith(" %") else float(said)
            value = float(tick.get_attribute("data-value"))
            assert abs(number - value) <= 1e-3 * max(1, abs(value))
            assert abs(self.value("y", tick.get_attribute("y")) - value) <= self.tolerance("y")


def chart_of(browser, name):
    # A page that draws itself anew, as where something is unfolded, takes the chart away that was found.
    looking = WebDriverWait(browser, 60, ignored_exceptions=[StaleElementReferenceException])
    chart = looking.until(lambda page: Chart(page.find_element(By.CSS_SELECTOR, f'svg[data-chart="{name}"]')))
    chart.check_ticks()
    return chart


def milliseconds(times):
    return np.array(times, "datetime64[ms]").astype(float) if isinstance(times[0], str) else np.array(times, float)


def open_page(browser, path, width=1280, height=900):
    """Open a file at a given size of the window; forgets what was logged before."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(Path(path).as_uri())
    # The load event may come before the script has drawn everything: on a busy machine by seconds.
    WebDriverWait(browser, 60).until(
        lambda page: page.execute_script("return document.documentElement.dataset.ready") == "true",
        "the page never said that it is drawn",
    )


def requests(browser):
    """Addresses that were asked for since the page was opened."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [message["params"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    return [params["request"]["url"] for params in sent]
