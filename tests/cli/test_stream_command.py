"""`smct stream`: every line answered, wrong ones too, and nothing lost to a kill -9 at any moment."""

import io
import json
import shutil
import signal
import subprocess
import sys

import pandas as pd
import pytest
from helpers.command_tables import QUICK, fails, json_lines, run, run_json, waves, write

from smc_transformer.forecaster import Forecaster
from smc_transformer.forecaster.folder.access import Writer, read_folder
from smc_transformer.forecaster.folder.store.accepted import Store
from smc_transformer.forecaster.folder.store.databases import StoreError
from smc_transformer.forecaster.live import Service
from smc_transformer.forecaster.rows import RowError, read_row


@pytest.fixture
def lines(tmp_path):
    """The 12 next observations of each series, in a file, in the order of time."""
    table = waves(92, 72)
    known = table["unique_id"].map({"a": 80, "b": 60})
    new = table[table.groupby("unique_id").cumcount() >= known]
    (tmp_path / "lines.jsonl").write_text(json_lines(new))
    return tmp_path / "lines.jsonl"


def stream(capsys, model, *options):
    code, out, err = run(capsys, "stream", model, "--paths", 20, *options)
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_answers_are_those_of_update_and_forecast(capsys, model, lines):
    forecaster = Forecaster.load(model)
    found = stream(capsys, model, "--input", lines, "--horizon", 3, "--level", 90)
    assert [answer["line"] for answer in found] == list(range(1, 25))
    table = waves(92, 72)
    for number, answer in enumerate(found[:6]):
        row = table[(table["unique_id"] == answer["unique_id"]) & (table["ds"] == answer["ds"])]
        assert len(row) == 1
        surprise = forecaster.update(row, level=90)
        assert answer["surprise"][0]["pit"] == pytest.approx(surprise["pit"][0])
        assert answer["surprise"][0]["log_density"] == pytest.approx(surprise["log_density"][0])
        assert set(answer["surprise"][0]) == {"target", "value", "log_density", "pit", "outside-90"}
        assert len(answer["forecast"]) == 3
        assert set(answer["forecast"][0]) == {"ds", "y", "y-lo-90", "y-hi-90"}
        if number == 0:
            alone = forecaster.fitted.following.series[answer["unique_id"]]
            assert answer["forecast"][0]["ds"] > alone.last_time.isoformat()
    # The model's folder now stands after the last line.
    assert Forecaster.load(model).predict()["ds"][0].isoformat() == "2024-01-04T20:00:00"


def test_wrong_lines_are_answered_and_the_stream_goes_on(capsys, model, monkeypatch):
    wrong = [
        (b"{broken", "not a line of JSON"),
        (b"\xff\xfe", "not a line of JSON"),
        (b'{"unique_id": "a", "ds": "2024-01-04T08:00", "y": 1.0, "y": 2.0}', "an object has 'y' twice"),
        (b"[1, 2]", "expected an object"),
        (b'{"ds": "2024-01-04T08:00", "y": 1}', "no 'unique_id'"),
        (b'{"unique_id": "z", "ds": "2024-01-04T08:00", "y": null}', "series 'z' is new"),
        (b'{"unique_id": "z ", "ds": "2024-01-04T08:00", "y": 1}', "unknown series 'z '"),
        (b'{"unique_id": 1.5, "ds": "2024-01-04T08:00", "y": 1}', "text or a whole number"),
        (b'{"unique_id": "a", "y": 1}', "no time 'ds'"),
        (b'{"unique_id": "a", "ds": "soon", "y": 1}', '"soon"'),
        (b'{"unique_id": "a", "ds": 5, "y": 1}', "ISO 8601"),
        (b'{"unique_id": "a", "ds": "2024-01-04T08:00Z", "y": 1}', "time zone"),
        (b'{"unique_id": "a", "ds": "2024-01-04T07:00", "y": 1}', "not after the last"),
        (b'{"unique_id": "a", "ds": "2024-01-04T08:30", "y": 1}', "not on the grid"),
        (b'{"unique_id": "a", "ds": "2124-01-04T08:00", "y": 1}', "more than 1000 steps"),
        (b'{"unique_id": "a", "ds": "9999-12-31T00:00", "y": 1}', "more than 1000 steps"),
        (b'{"unique_id": "a", "ds": "2024-01-04T08:00", "y": ' + 5000 * b"1" + b"}", "a whole number has 5000 digits"),
        (b'{"unique_id": "a", "y": ' + 100_000 * b"[", "lists and objects lie too deep in each other"),
        (b'{"unique_id": "' + 5000 * b"7" + b'", "ds": "2024-01-04T08:00", "y": 1}', "unknown series '777"),
        (b'{"unique_id": "a", "ds": "2024-01-04T08:00"}', "no 'y'"),
        (b'{"unique_id": "a", "ds": "2024-01-04T08:00", "y": "1"}', "number or null"),
        (b'{"unique_id": "a", "ds": "2024-01-04T08:00", "y": true}', "number or null"),
        (b'{"unique_id": "a", "ds": "2024-01-04T08:00", "y": 1e999}', "finite"),
        (b'{"unique_id": "a", "ds": "2024-01-04T08:00", "y": 1e300}', "beyond"),
    ]
    good = b'{"unique_id": "a", "ds": "2024-01-04T08:00", "y": 1, "note": "a key of its own"}'
    later = b'{"unique_id": "a", "ds": "2024-01-04T11:00", "y": null}'
    text = b"\n".join([*(line for line, _ in wrong), b"", good, b"  ", later])  # without a line break at the end
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    answers = stream(capsys, model)
    for (line, word), answer in zip(wrong, answers, strict=False):
        assert word in answer["error"], line
        assert "surprise" not in answer
    first, second = answers[len(wrong) :]
    assert (first["line"], second["line"]) == (len(wrong) + 2, len(wrong) + 4)
    assert first["surprise"][0]["value"] == 1.0
    assert first["forecast"][0]["ds"] == "2024-01-04T09:00:00"
    assert second["surprise"] == []  # nothing was observed
    assert second["forecast"][0]["ds"] == "2024-01-04T12:00:00"


def test_times_that_cannot_be_counted_in_the_units_of_the_fit_are_named(model):
    fitted = Forecaster.load(model).fitted
    followed = fitted.following.series
    followed["a"] = followed["a"]._replace(last_time=followed["a"].last_time.as_unit("ns"))
    cells = {"unique_id": "a", "ds": "9999-12-31T00:00", "y": 1}
    with pytest.raises(RowError, match="'ds' is out of reach"):
        read_row(cells, "a", fitted, horizon=1, most_steps=10)


def test_a_fault_of_any_size_does_not_end_the_stream(model):
    service = Service(model, n_paths=20)
    for number, value in enumerate((1e6, -1e9, 1e14, 0.5), start=1):
        line = json.dumps({"unique_id": "a", "ds": f"2024-01-04T{7 + number:02}:00", "y": value})
        answer = service.take(line.encode(), number)
        assert answer.get("error", "beyond").find("beyond") >= 0
        if "forecast" in answer:
            assert answer["forecast"][0]["y"] is not None, value
    service.close()


def test_whole_number_times_and_future_inputs(capsys, tmp_path, monkeypatch):
    table = waves(40).assign(ds=range(40), price=2.0).drop(columns="unique_id")
    run_json(
        capsys, "fit", write(table, tmp_path / "d.csv"), *QUICK, "--future-inputs", "price", "--out", tmp_path / "m"
    )
    text = b"""{"ds": 40, "y": 1.0, "price": 2.5, "future": {"price": [2.0, 3.0]}}
{"ds": 41, "y": 1.0, "price": 2.0}
{"ds": 42, "y": 1.0, "price": null}
{"ds": 42, "y": 1.0, "price": 1.0, "future": {"price": [2.0]}}
{"ds": 42.5, "y": 1.0, "price": 1.0}
{"ds": 42, "y": 1.0, "price": 1e300}
{"ds": 42, "y": 1.0, "price": 1.0, "future": {"price": [2.0, 1e300]}}
{"ds": 42, "y": 1.0, "price": 1.0}
"""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    first, second, *wrong, last = stream(capsys, tmp_path / "m", "--horizon", 2)
    assert [row["ds"] for row in first["forecast"]] == [41, 42]
    assert second["forecast"] is None  # what is known ahead was not given
    words = ("price", "2 values", "whole number", "column 'price' is 1e+300 at 42, beyond", "1e+300 at 44, beyond")
    for answer, word in zip(wrong, words, strict=True):
        assert word in answer["error"]
    assert last["ds"] == 42  # a line with a future that cannot be was not taken at all


def test_a_column_called_as_the_numbers_of_answers_is_refused(capsys, tmp_path, monkeypatch):
    table = waves(40).rename(columns={"unique_id": "line"})
    run_json(capsys, "fit", write(table, tmp_path / "d.csv"), *QUICK, "--id", "line", "--out", tmp_path / "m")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"line": "a", "ds": "2024-01-02T16", "y": 1}\n')))
    assert "answers are numbered in 'line'" in fails(capsys, 1, "stream", tmp_path / "m")


def test_a_state_of_its_own_leaves_the_model_alone(capsys, model, lines, tmp_path, data):
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    found = stream(capsys, model, "--input", lines, "--state", tmp_path / "live")
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
    again = stream(capsys, model, "--input", lines, "--state", tmp_path / "live", "--resume")
    assert again == found  # all of them have been one batch
    other = tmp_path / "other"
    run_json(capsys, "fit", data, *QUICK, "--seed", 1, "--out", other)
    assert "another fit" in fails(capsys, 1, "stream", other, "--state", tmp_path / "live", "--input", lines)


def test_a_state_of_its_own_begins_where_a_killed_stream_ended(capsys, model, lines, tmp_path):
    killed_after(model, lines, 3)
    expected = Forecaster.load(model).predict(n_paths=20)["y"].tolist()
    (tmp_path / "none.jsonl").write_text("")
    stream(capsys, model, "--input", tmp_path / "none.jsonl", "--state", tmp_path / "state")
    assert Forecaster.load(tmp_path / "state").predict(n_paths=20)["y"].tolist() == expected


def test_folders_that_are_no_models_are_named_and_left_alone(capsys, model, lines, tmp_path):
    assert "config.json is missing" in fails(capsys, 1, "stream", tmp_path, "--input", lines)
    assert not (tmp_path / "stream.lock").exists()
    config = (model / "config.json").read_text()
    for text in (config[:40], "{}"):
        (model / "config.json").write_text(text)
        assert "config.json" in fails(capsys, 1, "stream", model, "--input", lines)


def test_a_new_fit_waits_for_the_stream_and_forgets_its_lines(capsys, model, data, lines):
    fit = ("fit", data, *QUICK, "--out", model)
    with Writer(model):
        assert "another process is writing" in fails(capsys, 1, *fit)
    first = stream(capsys, model, "--input", lines)
    assert run(capsys, *fit)[0] == 0  # the same model, which stands at the end of the fit again
    assert stream(capsys, model, "--input", lines, "--resume") == first
    service = Service(model, n_paths=20)
    assert "forecast" in service.take(b'{"unique_id": "a", "ds": "2024-01-05T00:00", "y": 1}', 25)
    shutil.rmtree(model)
    small = {"config": {"d_model": 4, "d_ff": 4}, "training": {"likelihood_steps": 1, "forecast_steps": 1}}
    Forecaster(input_size=10, horizon=4, **small).fit(waves(40), progress=False).save(model)
    with pytest.raises(StoreError, match="another fit"):
        service.save()
    service.close()


def test_one_writer_at_a_time(capsys, model, lines):
    with Writer(model):
        assert "another process" in fails(capsys, 1, "stream", model, "--input", lines)
    assert stream(capsys, model, "--input", lines)


def killed_after(model, lines, n_answers, *options):
    """The answers of a process that is killed when it has given some, or in the middle of the next."""
    command = [sys.executable, "-m", "smc_transformer.cli", "stream", model, "--paths", "20", *options]
    with lines.open("rb") as file:
        process = subprocess.Popen([*map(str, command)], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    answers = [process.stdout.readline() for _ in range(n_answers)]
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()  # not by `communicate`, which knows nothing of what `readline` has read ahead
    assert process.wait() == -signal.SIGKILL
    process.stdout.close()
    return [json.loads(line) for line in (*answers, *rest.splitlines(keepends=True)) if line.endswith(b"\n")]


def test_killed_again_and_again_it_goes_on_to_the_same_answers(capsys, model, lines, tmp_path):
    shutil.copytree(model, tmp_path / "copy")
    expected = stream(capsys, tmp_path / "copy", "--input", lines)
    found = []
    for number, n_answers in enumerate((5, 4)):
        found += killed_after(model, lines, n_answers, "--save-every", 3, *(["--resume"] if number else []))
    found += stream(capsys, model, "--input", lines, "--resume", "--save-every", 3)
    by_line = {}
    for answer in found:  # the last answer before a kill may be given twice: the same
        assert by_line.setdefault(answer["line"], answer) == answer
    assert [by_line[number] for number in sorted(by_line)] == expected


def one_by_one(service, lines, **options):
    """The answers to lines that come one after the other."""
    return [answer for answers in service.answers(([line] for line in lines), **options) for answer in answers]


@pytest.mark.parametrize(
    "moment", ["before the store", "inside the transaction", "before the save", "inside the save", "saved"]
)
def test_a_kill_at_the_worst_moments(moment, model, lines, tmp_path, monkeypatch):
    shutil.copytree(model, tmp_path / "copy")
    text = lines.read_bytes().splitlines(keepends=True)
    expected = one_by_one(Service(tmp_path / "copy", n_paths=20), text)

    class Killed(BaseException):
        pass

    def killed(*arguments, **options):
        raise Killed

    service = Service(model, n_paths=20, save_every=1000)
    for number, line in enumerate(text[:7], start=1):
        service.take(line, number)
    if moment == "saved":
        service.save()
    else:
        is_saving = "save" in moment
        method = "_write_document" if "inside" in moment else "put_states" if is_saving else "append"
        monkeypatch.setattr(Store, method, killed)
        with pytest.raises(Killed):
            service.save() if is_saving else service.take(text[7], 8)
        monkeypatch.undo()
    service.close()
    second = Service(model, n_paths=20)
    assert second.n_taken == 7
    assert second.last_answers == (expected[6],)
    assert one_by_one(second, text, skip=second.n_taken) == expected[7:]


def test_other_commands_see_what_a_killed_stream_has_taken(capsys, model, lines):
    service = Service(model, n_paths=20)
    for number, line in enumerate(lines.read_bytes().splitlines()[:9], start=1):
        service.take(line, number)
    service.close()  # without saving
    expected = service.forecaster.predict(n_paths=20)["y"].tolist()
    assert Forecaster.load(model).predict(n_paths=20)["y"].tolist() == expected
    found = run_json(capsys, "predict", model, "--paths", 20)["forecast"]
    assert [row["y"] for row in found] == expected


@pytest.fixture
def with_outlier(lines):
    """The lines, of which the third is far off; it and the fourth are of series b."""
    text = lines.read_text().splitlines()
    text[2] = json.dumps({**json.loads(text[2]), "y": 50.0})
    lines.write_text("\n".join(text) + "\n")
    return lines


def test_an_outlier_is_distrusted_if_that_is_asked_for(capsys, model, with_outlier, tmp_path):
    shutil.copytree(model, tmp_path / "copy")
    forecaster = Forecaster.load(model)
    trusting = stream(capsys, tmp_path / "copy", "--input", with_outlier)
    found = stream(capsys, model, "--input", with_outlier, "--distrust", 99.9)
    assert [answer["surprise"][0]["distrusted"] for answer in found[:5]] == [False, False, True, False, False]
    assert found[2]["surprise"] == [{**trusting[2]["surprise"][0], "distrusted": True}]
    # Where the outlier was believed, the return to normal is a second alarm.
    assert [answer["unique_id"] for answer in found[2:4]] == ["b", "b"]
    assert trusting[3]["surprise"][0]["outside-95"]
    assert not found[3]["surprise"][0]["outside-95"]
    for line, answer in zip(with_outlier.read_text().splitlines()[:6], found, strict=False):
        row = pd.DataFrame([json.loads(line)])
        surprise = forecaster.update(row.assign(ds=pd.to_datetime(row["ds"])), distrust=99.9)
        assert answer["surprise"][0]["pit"] == surprise["pit"][0]


def test_what_was_distrusted_stays_so_after_a_kill(model, with_outlier, tmp_path):
    shutil.copytree(model, tmp_path / "copy")
    text = with_outlier.read_bytes().splitlines(keepends=True)
    expected = one_by_one(Service(tmp_path / "copy", n_paths=20, distrust=99.9), text)
    killed = Service(model, n_paths=20, distrust=99.9)
    for number, line in enumerate(text[:5], start=1):
        killed.take(line, number)
    killed.close()  # without saving: the lines are in the store alone
    state = killed.forecaster.predict(n_paths=20)["y"].tolist()
    assert Forecaster.load(model).predict(n_paths=20)["y"].tolist() == state
    second = Service(model, n_paths=20, distrust=99.9)
    assert one_by_one(second, text, skip=5) == expected[5:]
    second.close()


def test_another_level_of_distrust_holds_for_new_lines_only_and_is_said(capsys, model, with_outlier, tmp_path):
    text = with_outlier.read_bytes().splitlines(keepends=True)
    first = Service(model, n_paths=20, distrust=99.9)
    for number, line in enumerate(text[:5], start=1):
        first.take(line, number)
    first.close()
    state = first.forecaster.predict(n_paths=20)["y"].tolist()
    second = Service(model, n_paths=20)
    assert second.forecaster.predict(n_paths=20)["y"].tolist() == state
    second.take(text[5], 6)
    second.close()
    # Killed: rows of both levels are replayed, each as it was taken.
    assert [one.distrust for one in read_folder(model)[1].rounds] == [99.9] * 5 + [None]
    state = second.forecaster.predict(n_paths=20)["y"].tolist()
    assert Forecaster.load(model).predict(n_paths=20)["y"].tolist() == state
    (tmp_path / "rest.jsonl").write_bytes(b"".join(text[6:]))
    code, _, err = run(capsys, "stream", model, "--input", tmp_path / "rest.jsonl", "--paths", 20, "--distrust", 99)
    assert code == 0
    assert "6 lines were taken before, without --distrust; from now on they are taken with --distrust 99" in err


def test_a_line_that_is_sent_again_is_answered_as_before_and_changes_nothing(capsys, model, lines):
    found = stream(capsys, model, "--input", lines)
    state = Forecaster.load(model).predict(n_paths=20)["y"].tolist()
    again = stream(capsys, model, "--input", lines)
    assert again == [{**answer, "line": answer["line"] + 24} for answer in found]
    assert Forecaster.load(model).predict(n_paths=20)["y"].tolist() == state


def test_another_value_for_a_time_that_is_taken_is_refused_with_the_reason(model):
    service = Service(model, n_paths=5)
    line = {"unique_id": "a", "ds": "2024-01-04T08:00", "y": 1.5}
    service.take(json.dumps(line).encode(), 1)
    state = service.forecaster.predict(n_paths=20)["y"].tolist()
    for value, word in ((2.5, "got 2.5"), (None, "got None")):
        answer = service.take(json.dumps({**line, "y": value}).encode(), 2)
        assert "time 2024-01-04T08:00 is taken: 'y' is 1.5 there, " + word in answer["error"]
    # The same moment in other words.
    assert service.take(json.dumps({**line, "ds": "2024-01-04 08:00:00.000"}).encode(), 3)["surprise"]
    assert service.forecaster.predict(n_paths=20)["y"].tolist() == state
    service.close()


def test_the_store_stays_small(model, monkeypatch):
    service = Service(model, n_paths=1, save_every=4)
    for number in range(1, 20):
        service.take(b"nonsense", number)
    assert service.n_taken == 19
    for number in range(30):
        line = {"unique_id": "a", "ds": str(pd.Timestamp("2024-01-04T08:00") + pd.Timedelta(hours=number)), "y": 1.0}
        service.take(json.dumps(line).encode(), 20 + number)
    service.accepted.mark_saved(keep=10)
    kept = service.accepted.last("a", 100)
    assert [row.cells["ds"] for row in kept] == [f"2024-01-05 {hour:02}:00:00" for hour in range(4, 14)]
    service.close()
    assert sorted(path.name for path in model.glob("stream*")) == ["stream.sqlite"]
