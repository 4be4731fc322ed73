"""A forecaster as a model of MLflow: logged, loaded and served, it forecasts what it did before."""

import json
import sys
import threading
import time
import urllib.request

import pandas as pd
import pytest
from helpers.doc_blocks import python_of

from smc_transformer import Forecaster
from smc_transformer.adapters import mlflow as forecasters
from smc_transformer.forecaster.settings import Settings


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="`make test-mlflow` has an environment with it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # all that mlflow-skinny can write runs to
    return mlflow


@pytest.fixture(scope="module")
def forecaster(trained):
    return Forecaster.load(trained / "model")


@pytest.fixture(scope="module")
def history(trained):
    return pd.read_csv(trained / "data.csv", parse_dates=["ds"])


def assert_same(found, expected):
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_a_saved_model_forecasts_the_same(mlflow, forecaster, history, tmp_path):
    forecasters.save_model(forecaster, tmp_path / "saved")
    model = mlflow.pyfunc.load_model(str(tmp_path / "saved"))
    assert_same(model.predict(history), forecaster.predict(history))
    params = {"h": 2, "level": [50.0], "n_paths": 30, "seed": 4}
    assert_same(model.predict(history, params=params), forecaster.predict(history, **params))
    assert_same(model.predict(history[:0]), forecaster.predict())
    assert_same(forecasters.load_model(tmp_path / "saved").predict(), forecaster.predict())


@pytest.mark.filterwarnings("ignore")
def test_a_logged_model_is_served(mlflow, forecaster, history, tmp_path):
    """By MLflow's own server, asked over HTTP."""
    uvicorn = pytest.importorskip("uvicorn")
    from mlflow.pyfunc import scoring_server

    mlflow.set_tracking_uri(_store(tmp_path))
    with mlflow.start_run():
        info = forecasters.log_model(forecaster, name="sales")
    server = uvicorn.Server(uvicorn.Config(scoring_server.init(mlflow.pyfunc.load_model(info.model_uri)), port=0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        asked = {
            "dataframe_split": json.loads(history.to_json(orient="split", index=False, date_format="iso")),
            "params": {"seed": 5, "level": [80.0]},
        }
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations",
            json.dumps(asked).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=120) as answer:
            found = pd.DataFrame(json.load(answer)["predictions"])
    finally:
        server.should_exit = True
        thread.join(timeout=30)
    expected = forecaster.predict(history, seed=5, level=[80])
    assert found["unique_id"].tolist() == expected["unique_id"].tolist()
    assert pd.to_datetime(found["ds"]).tolist() == expected["ds"].tolist()
    for column in ("y", "y-lo-80", "y-hi-80"):
        assert found[column].tolist() == pytest.approx(expected[column].tolist())


@pytest.mark.filterwarnings("ignore")
def test_the_page_on_sharing(mlflow, forecaster, history, tmp_path):
    mlflow.set_tracking_uri(_store(tmp_path))
    names = {"forecaster": forecaster, "history": history}
    exec(python_of("sharing.md", "MLflow"), names)
    assert_same(names["model"].predict(history[:0]), forecaster.predict())


def _store(folder):
    return f"sqlite:///{folder}/runs.db" if _has_store() else (folder / "runs").as_uri()


def _has_store():
    try:
        import sqlalchemy  # noqa: F401
    except ImportError:
        return False  # mlflow-skinny: runs in files
    return True


@pytest.mark.filterwarnings("ignore")
def test_other_models_are_refused(mlflow, tmp_path):
    class Zero(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input, params=None):
            return 0

    mlflow.pyfunc.save_model(str(tmp_path / "zero"), python_model=Zero(), pip_requirements=[])
    with pytest.raises(ValueError, match="not one of smc-transformer"):
        forecasters.load_model(tmp_path / "zero")


def test_rows_after_the_last_value_are_the_steps_ahead():
    settings = Settings(future_inputs=("promotion",), freq="D")
    days = pd.date_range("2024-01-01", periods=5)
    table = pd.concat(
        [
            pd.DataFrame({"unique_id": "a", "ds": days, "y": [1.0, None, 3.0, None, None], "promotion": 0.0}),
            pd.DataFrame({"unique_id": "b", "ds": days[:3], "y": [1.0, 2.0, None], "promotion": 1.0}),
        ],
        ignore_index=True,
    )
    history, future = forecasters.split_future(table, settings)
    assert history.index.tolist() == [0, 1, 2, 5, 6]
    assert future.index.tolist() == [3, 4, 7]
    assert future.columns.tolist() == ["unique_id", "ds", "promotion"]
    history, future = forecasters.split_future(table.drop(columns="y"), settings)  # the series as they are followed
    assert history is None
    assert len(future) == 8
    assert forecasters.split_future(table, Settings(freq="D"))[1] is None


def test_without_mlflow_the_error_says_what_to_install(forecaster, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ImportError, match=r"pip install 'smc-transformer\[mlflow\]'"):
        forecasters.load_model(tmp_path)
