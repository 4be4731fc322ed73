"""The benchmark runs; no test asserts a time."""

from helpers.forecaster_tables import SHORT, TINY

from benchmarks import forecaster


def test_benchmark_runs_at_a_tiny_size(capsys):
    forecaster.main(2, 120, config=TINY, training=SHORT)
    printed = capsys.readouterr().out
    assert "predict, 24 steps, 1000 paths" in printed
    assert "s processor" in printed
