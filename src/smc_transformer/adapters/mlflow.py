"""A fitted forecaster as a model of MLflow: logged, registered, loaded and served like any other (pyfunc).

    from smc_transformer.adapters import mlflow as forecasters

    info = forecasters.log_model(forecaster, name="sales")
    model = mlflow.pyfunc.load_model(info.model_uri)
    model.predict(history, params={"h": 12, "level": [80.0, 95.0]})  # histories of any series, in a long table
    model.predict(history[:0])                                       # no rows: the series as the fit has followed them
    forecasters.load_model(info.model_uri)                           # the Forecaster itself

For a forecaster with future inputs, rows after the last observed value of a series are the steps ahead. Needs mlflow or
mlflow-skinny (the extra `mlflow`).
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from smc_transformer._version import __version__
from smc_transformer.forecaster.facade import Forecaster
from smc_transformer.forecaster.settings import Settings

FOLDER = "forecaster"
DEFAULTS = {"level": [80.0, 95.0], "n_paths": 1000}
NO_NUMBER = -1
"""A parameter of MLflow has a type and a default of this type: this is how h and seed are left out."""


class ForecastModel:
    """What MLflow calls: `predict` of a table, with parameters."""

    def __init__(self, forecaster: Forecaster) -> None:
        self.forecaster = forecaster

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Means and intervals, as `Forecaster.predict` gives them."""
        options = {**DEFAULTS, **(params or {})}
        h, seed = (None if options.get(name, NO_NUMBER) == NO_NUMBER else int(options[name]) for name in ("h", "seed"))
        history, future = split_future(model_input, self.forecaster.settings)
        return self.forecaster.predict(
            history, h, list(options["level"]), future=future, n_paths=int(options["n_paths"]), seed=seed
        )


def split_future(table: pd.DataFrame, settings: Settings) -> tuple[pd.DataFrame | None, pd.DataFrame | None]:
    """The histories in a table, and the rows ahead of them, with future inputs only; None where there are none."""
    if not settings.future_inputs:
        return (table if len(table) else None), None
    missing = [column for column in settings.modelled if column not in table.columns]
    complete = table.assign(**dict.fromkeys(missing, float("nan")))
    observed = complete[list(settings.modelled)].notna().any(axis=1)
    last = complete[settings.time_column].where(observed).groupby(complete[settings.id_column]).transform("max")
    ahead = last.isna() | (complete[settings.time_column] > last)  # all of them where nothing is observed
    history, future = complete[~ahead], complete.loc[ahead].drop(columns=list(settings.modelled))
    return (history if len(history) else None), (future if len(future) else None)


def save_model(forecaster: Forecaster, path: str | Path, **options: Any) -> None:
    """Write a folder that MLflow can load; options are those of `mlflow.pyfunc.save_model`."""
    with _arguments(forecaster, options) as arguments:
        _mlflow().pyfunc.save_model(str(path), **arguments)


def log_model(forecaster: Forecaster, name: str = "forecaster", **options: Any) -> Any:
    """Log a forecaster; options (registered_model_name, ...) and answer are those of `mlflow.pyfunc.log_model`."""
    with _arguments(forecaster, options) as arguments:
        return _mlflow().pyfunc.log_model(name=name, **arguments)


def load_model(uri: str | Path) -> Forecaster:
    """The forecaster itself, from an address of MLflow or from a folder."""
    mlflow = _mlflow()
    folder = Path(mlflow.artifacts.download_artifacts(str(uri)))
    flavour = mlflow.models.Model.load(str(folder)).flavors.get("python_function", {})
    if flavour.get("loader_module") != __name__:
        raise ValueError(f"{uri} is a model of MLflow, but not one of smc-transformer")
    return Forecaster.load(folder / flavour["data"])


def _load_pyfunc(path: str) -> ForecastModel:
    """Called by MLflow, with the folder that `save_model` has put there."""
    return ForecastModel(Forecaster.load(path))


@contextmanager
def _arguments(forecaster: Forecaster, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What MLflow needs to know, while the saved forecaster that it copies is there."""
    with tempfile.TemporaryDirectory() as made_in:
        folder = Path(made_in) / FOLDER
        Forecaster.save(forecaster, folder)
        yield {
            "loader_module": __name__,
            "data_path": str(folder),
            "signature": _signature(),
            "pip_requirements": [f"smc-transformer[mlflow]=={__version__}"],
            **options,
        }


def _signature() -> Any:
    """The parameters. Columns are left open: the forecaster's own errors say more than those of a schema would."""
    from mlflow.models import ModelSignature
    from mlflow.types import DataType, ParamSchema, ParamSpec

    return ModelSignature(
        params=ParamSchema(
            [
                ParamSpec("h", DataType.long, NO_NUMBER),
                ParamSpec("level", DataType.double, DEFAULTS["level"], shape=(-1,)),
                ParamSpec("n_paths", DataType.long, DEFAULTS["n_paths"]),
                ParamSpec("seed", DataType.long, NO_NUMBER),
            ]
        )
    )


def _mlflow() -> Any:
    try:
        import mlflow
        import mlflow.artifacts
        import mlflow.models
        import mlflow.pyfunc
    except ImportError:
        raise ImportError(
            "models of MLflow need mlflow or mlflow-skinny: pip install 'smc-transformer[mlflow]'"
        ) from None
    return mlflow
