"""Commands of other packages, as their entry points name them."""

import importlib.metadata
import sys

from smc_transformer.cli import app, plugins


def test_entry_points_are_those_that_python_finds():
    for group in ("smct.commands", "console_scripts", "pytest11"):
        expected = {point.name: point.value for point in importlib.metadata.entry_points(group=group)}
        assert expected
        assert plugins.entry_points(group) == expected


def test_a_package_brings_a_command(tmp_path, monkeypatch):
    (tmp_path / "more_commands.py").write_text("def add(parsers):\n    parsers.add_parser('more', help='of others')\n")
    folder = tmp_path / "more-1.0.dist-info"
    folder.mkdir()
    text = "# none\n[others]\nx = y\n\n[smct.commands]\n; not = this\nmore = more_commands\n[later]\nz = w\n"
    (folder / "entry_points.txt").write_text(text)
    (tmp_path / "broken-1.0.dist-info").mkdir()
    (tmp_path / "broken-1.0.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe")
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "nothing here"), *sys.path])
    assert plugins.entry_points("smct.commands")["more"] == "more_commands"
    assert plugins.entry_points("others") == {"x": "y"}
    assert "more_commands" in [command.__name__ for command in app.commands()]
    assert "of others" in app.make_parser().format_help()
