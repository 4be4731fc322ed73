"""The estimator and predictor of GluonTS, by GluonTS itself: its splits, its evaluation, its DeepAR beside."""

import numpy as np
import pandas as pd
import pytest
from gluonts.dataset.common import ListDataset
from gluonts.dataset.pandas import PandasDataset
from gluonts.dataset.split import split
from gluonts.ev.metrics import MSE, MeanWeightedSumQuantileLoss
from gluonts.model.evaluation import evaluate_model
from gluonts.model.forecast import SampleForecast
from gluonts.model.predictor import Predictor
from helpers.doc_blocks import monthly_sales, python_of, train_shortly
from helpers.forecaster_tables import SHORT, TINY, autoregression

from smc_transformer.adapters.gluonts import SMCEstimator, SMCPredictor
from smc_transformer.forecaster.fitted import Fitted

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")

HORIZON = 4
SMALL = {"input_size": 10, "config": TINY, "training": SHORT, "n_particles": 16, "num_samples": 50, "progress": False}


def make(**options):
    return SMCEstimator(**{"prediction_length": HORIZON, **SMALL, **options})


def entries(*lengths, freq="M", features=False, gaps=False):
    found = []
    for number, length in enumerate(lengths):
        target = 10 + autoregression(np.random.default_rng(number), length)
        if gaps:
            target[3::7] = np.nan
        entry = {"start": pd.Period("2020-01-01", freq=freq), "target": target, "item_id": f"shop {number}"}
        if features:
            entry["feat_dynamic_real"] = np.stack((np.arange(length) % 3, np.ones(length))).astype(float)
        found.append(entry)
    return found


@pytest.fixture(scope="module")
def trained():
    return make().train(entries(40, 36))


def known(entry, n_rows):
    return {**entry, "target": entry["target"][..., :n_rows]}


def test_forecasts_are_joint_paths_after_the_last_row(trained):
    data = entries(40, 36)
    first, second = trained.predict(data)
    assert isinstance(first, SampleForecast)
    assert first.samples.shape == (50, HORIZON)
    assert (first.item_id, second.item_id) == ("shop 0", "shop 1")
    assert (first.start_date, second.start_date) == (pd.Period("2023-05", "M"), pd.Period("2023-01", "M"))
    assert first.quantile(0.9).mean() > first.quantile(0.1).mean()
    # They are the paths of the forecaster.
    parts = []
    for number, one in enumerate(data):
        times = pd.period_range(one["start"], periods=len(one["target"]))
        parts.append(pd.DataFrame({"unique_id": number, "ds": times, "y0": one["target"]}))
    table = pd.concat(parts)
    expected = trained.forecaster.follow(table).forecast(n_paths=50)
    np.testing.assert_array_equal(first.samples, expected.paths[0, ..., 0])
    assert len(next(iter(trained.predict(data, num_samples=7))).samples) == 7


def test_windows_of_one_series_are_filtered_once(trained, monkeypatch):
    data = entries(40, 36)
    _, template = split(data, offset=-12)
    test = template.generate_instances(prediction_length=HORIZON, windows=3)
    rows = {"follow": [], "update": []}

    def counting(name, whole):
        def counted(self, given, *arguments, **options):
            rows[name] += [len(one) for one in given]
            return whole(self, given, *arguments, **options)

        return counted

    for name in rows:
        monkeypatch.setattr(Fitted, name, counting(name, getattr(Fitted, name)))
    found = list(trained.predict(test.input))
    assert [one.item_id for one in found] == ["shop 0"] * 3 + ["shop 1"] * 3
    starts = [one.start_date for one in found]
    assert starts[:3] == [pd.Period("2022-05", "M") + 4 * number for number in range(3)]
    # Each row once: 28 and 24 rows at first, then four at a time. (`update` also follows series that are new: none.)
    assert sorted(rows["follow"]) == [24, 28]
    assert rows["update"] == [HORIZON] * 4


def test_shared_filtering_has_the_distribution_of_separate(trained):
    """Many copies of one series, by rolling windows and each window alone: means agree within their errors."""
    (entry,) = entries(36)
    windows = [known({**entry, "item_id": f"copy {copy}"}, n) for copy in range(60) for n in (28, 32, 36)]
    together = [one.mean for one in trained.predict(windows, num_samples=100)][2::3]
    alone = [one.mean for one in trained.predict(windows[2::3], num_samples=100)]
    one, other = np.array(together), np.array(alone)
    error = np.sqrt((one.var(axis=0) + other.var(axis=0)) / 60)
    assert (np.abs(one.mean(axis=0) - other.mean(axis=0)) < 4 * error).all()


@pytest.mark.parametrize("batch_size", [1, 256])
def test_entries_of_any_order_and_batches_keep_their_places(trained, batch_size):
    predictor = SMCPredictor(trained.forecaster, HORIZON, num_samples=20, batch_size=batch_size)
    long, short = entries(40, 36)
    data = [known(long, 40), known(long, 20), known(short, 20), known(long, 20), known(short, 25), known(short, 25)]
    found = list(predictor.predict(data))
    assert [one.item_id for one in found] == [one["item_id"] for one in data]
    assert [one.start_date for one in found] == [one["start"] + len(one["target"]) for one in data]


def test_features_and_gaps(trained):
    data = entries(40, 36, features=True, gaps=True)
    predictor = make().train([known(one, len(one["target"]) - HORIZON) for one in data])
    ahead = [known(one, len(one["target"]) - HORIZON) for one in data]  # features go on over the steps ahead
    found = list(predictor.predict(ahead))
    assert np.isfinite([one.samples for one in found]).all()
    other = [{**one, "feat_dynamic_real": np.where(np.arange(one["feat_dynamic_real"].shape[1]) < len(one["target"]),
                                                   one["feat_dynamic_real"], 9.0)} for one in ahead]  # fmt: skip
    assert not np.allclose(found[0].mean, next(iter(predictor.predict(other))).mean)
    with pytest.raises(ValueError, match="no row"):
        list(predictor.predict(data))
    with pytest.raises(ValueError, match="must be known at the 40 times"):
        list(predictor.predict([{**data[0], "feat_dynamic_real": np.zeros((2, 30))}]))


def test_several_columns_are_forecast_jointly():
    (one,) = entries(40)
    both = {**one, "target": np.stack((one["target"], 2 * one["target"] + 1))}
    (found,) = make(num_samples=200).train([both]).predict([both])
    assert found.samples.shape == (200, HORIZON, 2)


def test_a_lead_time_skips_steps():
    data = entries(40)
    (found,) = make(lead_time=2).train(data).predict(data)
    (whole,) = make(prediction_length=6).train(data).predict(data)
    assert found.start_date == pd.Period("2023-07", "M")
    np.testing.assert_array_equal(found.samples, whole.samples[:, 2:])


@pytest.mark.parametrize("freq", ["h", "D", "W-SUN", "Q-DEC", "15min"])
def test_periods_of_all_kinds(freq):
    data = ListDataset(entries(30, freq=freq), freq=freq)
    (found,) = make().train(data).predict(data)
    assert found.start_date == pd.Period("2020-01-01", freq=freq) + 30


def test_serialised_as_gluonts_does_it(trained, tmp_path):
    trained.serialize(tmp_path)
    loaded = Predictor.deserialize(tmp_path)
    assert isinstance(loaded, SMCPredictor)
    for one, other in zip(trained.predict(entries(40, 36)), loaded.predict(entries(40, 36)), strict=True):
        np.testing.assert_array_equal(one.samples, other.samples)
        assert one.start_date == other.start_date
    assert not list(tmp_path.rglob("*.pkl"))


def test_estimators_are_made_from_hyperparameters():
    made = SMCEstimator.from_hyperparameters(prediction_length="3", seed=2)
    assert made.prediction_length == 3
    assert "prediction_length=3" in repr(made)
    with pytest.raises(ValueError, match="no entries"):
        make().train([])


@pytest.mark.slow
def test_evaluated_beside_deepar(tmp_path, monkeypatch):
    """Seasonal series: trained for a moment, the defaults are not worse than GluonTS's DeepAR of a few epochs."""
    from gluonts.torch.model.deepar import DeepAREstimator

    monkeypatch.chdir(tmp_path)  # Lightning writes its checkpoints there
    random, month = np.random.default_rng(0), np.arange(96)
    series = {}
    for number in range(12):
        season = (1 + number % 3) * np.sin(2 * np.pi * (month + number) / 12)
        series[f"shop {number}"] = pd.DataFrame(
            {"target": 20 + number + season + 0.3 * random.normal(size=96)},
            index=pd.period_range("2015-01", periods=96, freq="M"),
        )
    training, template = split(PandasDataset(series), offset=-24)
    test = template.generate_instances(prediction_length=12, windows=2)
    ours = SMCEstimator(prediction_length=12, training={"likelihood_steps": 30, "forecast_steps": 30}, progress=False)
    theirs = DeepAREstimator(
        freq="M",
        prediction_length=12,
        num_layers=1,
        hidden_size=16,
        batch_size=32,
        num_batches_per_epoch=20,
        trainer_kwargs={"max_epochs": 3, "accelerator": "cpu", "enable_progress_bar": False, "logger": False,
                        "enable_checkpointing": True},
    )  # fmt: skip
    metrics = [MeanWeightedSumQuantileLoss([0.1, 0.5, 0.9]), MSE()]
    one, other = (evaluate_model(each.train(training), test_data=test, metrics=metrics) for each in (ours, theirs))
    assert list(one.columns) == list(other.columns)
    loss = "mean_weighted_sum_quantile_loss"
    assert 0 < one[loss].item() < other[loss].item()
    assert one[loss].item() < 0.05  # a fortieth of the level is the size of the noise


def test_the_page_on_other_libraries(monkeypatch):
    train_shortly(monkeypatch)
    names = monthly_sales()
    exec(python_of("other_libraries.md", "GluonTS"), names)
    assert 0 < names["losses"].iloc[0, 0] < 1
