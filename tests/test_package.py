"""The package as a whole: quick to import, free of optional packages, with a command line that helps."""

import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

import smc_transformer
from smc_transformer import cli

ROOT = Path(__file__).parents[1]


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_takes_no_optional_dependency():
    blocked = "('matplotlib', 'scipy', 'scoringrules', 'beartype', 'hypothesis', 'pandas', 'polars', 'pyarrow')"
    code = f"""
import sys
for name in {blocked}:
    sys.modules[name] = None
import smc_transformer, smc_transformer.learning, smct_paper.datasets, smct_paper.demo
names = [name for name in smc_transformer.__all__ if name != "Forecaster"]  # which is for tables, so of pandas
print([getattr(smc_transformer, name) is not None for name in names])
"""
    assert "False" not in run_python(code)


@pytest.mark.parametrize("library", ["sktime", "gluonts"])
def test_an_adapter_without_its_library_says_what_to_install(library):
    code = f"""
import sys
sys.modules["{library}"] = None
try:
    import smc_transformer.adapters.{library}
except ImportError as error:
    print(error)
"""
    assert run_python(code).endswith(f"pip install 'smc-transformer[{library}]'")


def test_help_does_not_wait_for_what_it_does_not_need():
    code = """
import sys
from smc_transformer import cli
try:
    cli.main(["--help"])
except SystemExit as stop:
    assert stop.code == 0
slow = ("torch", "pandas", "importlib.metadata", "logging", "tempfile", "smct_paper.experiments")
print([name for name in slow if name in sys.modules])
"""
    assert run_python(code).endswith("[]")


def test_help_reads_as_written(capsys):
    with pytest.raises(SystemExit):
        cli.main(["demo", "--help"])
    assert "true 95 % band" in " ".join(capsys.readouterr().out.split())


def test_unknown_names_are_not_invented():
    with pytest.raises(AttributeError, match="no attribute 'SMCTransfomer'"):
        smc_transformer.SMCTransfomer  # noqa: B018


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"smct {smc_transformer.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [["nonsense"], ["demo", "--epochs", "0"], ["demo", "--dataset", "model9"], ["demo", "--seed", "-1"]],
)
def test_wrong_usage_exits_with_two_and_says_why(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_reported_before_the_work(capsys):
    assert cli.main(["demo", "--out", "/dev/null/demo"]) == 1
    assert "/dev/null" in capsys.readouterr().err


def test_interrupting_is_not_a_traceback(monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("smct_paper.demo.run_demo", interrupted)
    assert cli.main(["demo"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_every_module_is_in_a_layer_and_few_lie_at_the_root():
    """A module that the contract does not name could import whatever it likes."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    whole, *_ = settings["contracts"]
    layers = {name for layer in whole["layers"] for name in layer.split(" | ")}
    assert "ignore_imports" not in whole
    assert not settings.get("exclude_type_checking_imports", False)
    found = {path.stem for path in Path(smc_transformer.__file__).parent.iterdir() if path.name != "__pycache__"}
    at_root = {path.stem for path in Path(smc_transformer.__file__).parent.glob("*.py")} - {"__init__"}
    assert {f"smc_transformer.{name}" for name in found - {"__init__", "_version"}} == layers - {"smct_paper"}
    assert len(at_root) <= 8
