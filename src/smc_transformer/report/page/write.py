"""Writing the page: one file with its numbers, its style and its script in it."""

import json
from dataclasses import asdict
from pathlib import Path

from smc_transformer.report.page.data import ReportPage
from smc_transformer.support.durable import whole

TEMPLATES = Path(__file__).parent / "templates"

SCRIPTS = (
    "scale",  # numbers to pixels, ticks, and how numbers are written
    "svg",  # elements, lines with gaps, axes
    "readout",  # what pointer and keyboard show of a chart
    *("fan", "variance", "attention", "health", "calibration", "pit", "coverage", "tables", "picker", "main"),
)
"""The parts of the script, in order."""


def write_page(page: ReportPage, path: str | Path) -> Path:
    """Write the page as one HTML file that needs nothing else, neither files nor network; folders are made.

    Returns:
        The path.
    """
    path = Path(path)
    with whole(path) as file:
        file.write_text(render_page(page), encoding="utf-8")
    return path


def render_page(page: ReportPage) -> str:
    """The page as HTML."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise ImportError("the page needs jinja2: pip install 'smc-transformer[report]'") from None

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    script = "\n".join((TEMPLATES / "script" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    parts = {"style": Markup(style), "script": Markup(script), "data": Markup(embedded_json(page))}
    return environment.get_template("page.html.j2").render(page=page, **parts)


def embedded_json(page: ReportPage) -> str:
    """The page's numbers as JSON that is safe inside a script element, whatever the names are.

    No "<" is left, so that no name can end the element or begin another; JSON reads the escapes as the same characters.
    """
    text = json.dumps(asdict(page), allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
