"""Folders as Hugging Face has them: what was learned comes back to the last bit, and nothing else is in them."""

import json
import shutil
import sys
from pathlib import Path

import huggingface_hub
import pandas as pd
import pytest
import torch
from helpers.models import sequences
from helpers.user_encoders import MovingAverages
from huggingface_hub import constants

from smc_transformer import Forecaster, InferenceSettings, SMCTransformer, SMCTransformerConfig
from smc_transformer.adapters.huggingface import PretrainedError, from_pretrained, push_to_hub, save_pretrained
from smc_transformer.support.tensor_files import read_tensors

FILES = ["README.md", "config.json", "model.safetensors", "states.safetensors"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def forecaster(trained):
    return Forecaster.load(trained / "model")


@pytest.fixture(scope="module")
def history(trained):
    table = pd.read_csv(trained / "data.csv", parse_dates=["ds"])
    return table.assign(unique_id=table.unique_id + " elsewhere")


@pytest.fixture(scope="module")
def folder(forecaster, tmp_path_factory):
    return save_pretrained(forecaster, tmp_path_factory.mktemp("pretrained") / "model")


# --- a forecaster -------------------------------------------------------------------------------------------


def test_a_forecaster_comes_back_as_it_was(forecaster, history, folder):
    again = from_pretrained(folder)
    expected = forecaster.predict(history, level=[80], seed=3)
    pd.testing.assert_frame_equal(again.predict(history, level=[80], seed=3), expected, check_exact=True)


def test_no_series_is_in_the_folder(folder):
    assert names(folder) == FILES
    tensors, header = read_tensors(folder / "states.safetensors", ValueError)
    assert header["series"] == []
    assert all(one.numel() == 0 for one in tensors.values())
    for path in folder.iterdir():
        assert b"2024-" not in path.read_bytes(), path  # the times that it was fitted on
    assert from_pretrained(folder).fitted.trained_until == {}


def test_it_follows_what_it_is_given(folder, history, tmp_path):
    again = from_pretrained(folder)
    with pytest.raises(ValueError, match="follows no series yet"):
        again.predict()
    again.update(history)
    assert set(again.series) == {"a elsewhere", "b elsewhere"}
    expected = again.predict()
    again.save(tmp_path / "followed")
    pd.testing.assert_frame_equal(Forecaster.load(tmp_path / "followed").predict(), expected, check_exact=True)


def test_times_of_series_that_are_followed_have_one_zone(folder, history):
    again = from_pretrained(folder)
    again.update(history.assign(ds=history.ds.dt.tz_localize("Europe/Paris")))
    with pytest.raises(ValueError, match="no time zone"):
        again.predict(history)


def test_states_are_not_pushed_by_mistake(forecaster, trained):
    before = names(trained / "model")
    with pytest.raises(PretrainedError, match="states of its series: choose another folder"):
        save_pretrained(forecaster, trained / "model")
    assert names(trained / "model") == before


def test_a_forecaster_must_be_fitted(tmp_path):
    with pytest.raises(ValueError, match="not been fitted"):
        save_pretrained(Forecaster(horizon=3), tmp_path)


# --- a model ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("observation", ["gaussian", "student_t", "heteroscedastic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_comes_back_as_it_was(observation, dtype, tmp_path):
    config = SMCTransformerConfig(d_model=8, d_ff=8, encoder="gru", observation=observation)
    model = SMCTransformer(config, generator=3, inference=InferenceSettings(n_particles=7)).to(dtype)
    again = from_pretrained(save_pretrained(model, tmp_path / "model"))
    assert (again.config, again.inference, again.learning) == (model.config, model.inference, model.learning)
    x = sequences(2, 6).to(dtype)
    assert torch.equal(again.filter(x, generator=0).log_likelihood, model.filter(x, generator=0).log_likelihood)


def test_keys_of_the_config_are_no_arguments_of_the_constructor(tmp_path):
    """Hugging Face's mixin would give them to it, and `observation` is a module there."""
    save_pretrained(SMCTransformer(SMCTransformerConfig(d_model=4, d_ff=4)), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architecture"]["observation"] == "gaussian"
    assert not set(config) & {"config", "generator", "inference_settings", "encoder", "observation"}


def test_own_parts_are_asked_for(tmp_path):
    model = SMCTransformer(SMCTransformerConfig(d_model=4, d_ff=4), generator=0, encoder=MovingAverages(1, 4))
    save_pretrained(model, tmp_path)
    with pytest.raises(PretrainedError, match=r"made with an encoder of its own \(.+\): give it as encoder=..."):
        from_pretrained(tmp_path)
    again, x = from_pretrained(tmp_path, encoder=MovingAverages(1, 4)), sequences(2, 6).float()
    assert torch.equal(again.filter(x, generator=0).log_likelihood, model.filter(x, generator=0).log_likelihood)


# --- the card, the Hub, errors ------------------------------------------------------------------------------


def test_the_card_is_one_for_hugging_face(folder):
    card = huggingface_hub.ModelCard.load(folder / "README.md")
    assert card.data.library_name == "smc-transformer"
    assert card.data.pipeline_tag == "time-series-forecasting"
    assert "| steps ahead | 4 |" in card.text


def test_a_card_that_somebody_has_written_is_kept(forecaster, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    save_pretrained(forecaster, tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"
    save_pretrained(forecaster, tmp_path, card="another")
    assert (tmp_path / "README.md").read_text() == "another"


def test_a_model_that_was_downloaded_is_found_without_a_network(folder, monkeypatch, tmp_path, history, forecaster):
    commit = "0123456789abcdef0123456789abcdef01234567"
    repository = tmp_path / "models--owner--sales"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    shutil.copytree(folder, repository / "snapshots" / commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    again = from_pretrained("owner/sales", local_files_only=True)
    expected = forecaster.predict(history, seed=1)
    pd.testing.assert_frame_equal(again.predict(history, seed=1), expected, check_exact=True)


def test_what_is_pushed_is_what_would_be_saved(forecaster, monkeypatch):
    pushed = []

    def create_repo(api, name, **options):
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{name}")

    def upload_folder(api, *, repo_id, folder_path, **options):
        pushed.append((repo_id, type(from_pretrained(folder_path)), names(Path(folder_path))))

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create_repo)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload_folder)
    assert push_to_hub(forecaster, "owner/sales") == "https://huggingface.co/owner/sales"
    assert pushed == [("owner/sales", Forecaster, FILES)]


def test_without_the_extra_folders_work_and_the_hub_says_what_to_install(forecaster, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert isinstance(from_pretrained(folder), Forecaster)
    with pytest.raises(ImportError, match=r"pip install 'smc-transformer\[huggingface\]'"):
        from_pretrained("owner/sales")


@pytest.mark.parametrize("name", ["nothing", "./nothing/here", "/nothing/here", "a/b/c"])
def test_a_folder_that_is_not_there_is_no_repository(name):
    with pytest.raises(PretrainedError, match="there is no folder"):
        from_pretrained(name)


def test_damage_is_refused(tmp_path):
    save_pretrained(SMCTransformer(SMCTransformerConfig(d_model=4, d_ff=4)), tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(PretrainedError, match="checksum"):
        from_pretrained(tmp_path)
    weights.write_bytes(whole)
    config = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(config.replace('"n_heads": 1', '"n_heads": 2'))
    with pytest.raises(PretrainedError, match="was edited"):
        from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(PretrainedError, match="not readable"):
        from_pretrained(tmp_path)


def test_other_things_are_refused(tmp_path, without_shape_checks):
    with pytest.raises(TypeError, match="got Linear"):
        save_pretrained(torch.nn.Linear(1, 1), tmp_path)
