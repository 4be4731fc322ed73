"""The C sources without a warning; `make sanitize` asks the optimiser too."""

import subprocess

import pytest

from smc_transformer.kernels import building


def complaints(number, *sources):
    compiler = building.c_compiler()
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    command = [*building.command(compiler, number, ()), "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    return subprocess.run([*command, *map(str, sources)], capture_output=True, text=True).stderr


@pytest.mark.parametrize("number", building.NUMBERS)
def test_the_sources_compile_without_a_warning(number):
    assert complaints(number, *(building.FOLDER / name for name in building.SOURCES)) == ""


def test_every_source_and_header_of_the_folder_is_one_of_the_kernels():
    assert {path.name for path in building.FOLDER.glob("*.[ch]")} == {*building.SOURCES, *building.HEADERS}


def test_a_source_that_deserves_a_warning_gets_one(tmp_path):
    (tmp_path / "careless.c").write_text("int careless(unsigned n) { int unused; return n < -1; }\n")
    assert "unused" in complaints("float", tmp_path / "careless.c")
