"""A damaged or edited folder is refused with the reason, before anything is computed from it."""

import json
import os
import shutil

import pytest
import torch
from helpers.forecaster_tables import head, make, walks

from smc_transformer.forecaster import Forecaster, SavedForecasterError
from smc_transformer.support.checksums import sealed
from smc_transformer.support.tensor_files import read_tensors, write_tensors

pytestmark = pytest.mark.usefixtures("without_shape_checks")  # as users run the package

KEPT = "forecaster/saved_by_0_1_0/model"
"""A folder without checksums, whose files may be edited as if nobody noticed."""


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two series, of which one has a gap: its particles have inputs of their own."""
    table = walks(60, 50)
    table.loc[table["ds"] == 40, "y"] = float("nan")
    folder = tmp_path_factory.mktemp("saved") / "model"
    make(scaling="standard").fit(head(table, 60), progress=False).save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def edit_states(folder, change):
    """Change tensors or header, and compute the checksum anew."""
    path = folder / "states.safetensors"
    tensors, header = read_tensors(path, ValueError)
    change(tensors, header)
    write_tensors(path, tensors, header)


def edit_config(folder, change, *, seal=True):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(sealed(config) if seal else config))


def refused(folder, *words):
    with pytest.raises(SavedForecasterError) as error:
        Forecaster.load(folder)
    message = str(error.value)
    for word in words:
        assert word in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "states.safetensors"])
def test_every_bit_of_every_file_is_watched(folder, name):
    """A flip at places all over a file: in the length, in the header, in numbers, in the last byte."""
    whole = (folder / name).read_bytes()
    places = [0, 3, 9, *range(20, len(whole), max(1, len(whole) // 40)), len(whole) - 3]
    for number, place in enumerate(places):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << (number % 8)
        (folder / name).write_bytes(damaged)
        try:
            Forecaster.load(folder)
        except SavedForecasterError:
            continue
        # Only what means the same may pass: white space between the words of JSON.
        assert name == "config.json", place
        assert json.loads(damaged) == json.loads(whole), place


def test_an_edited_setting_is_refused(folder):
    edit_config(folder, lambda config: config["settings"]["config"].update(window=1), seal=False)
    refused(folder, "config.json is damaged or was edited", "checksum")


def test_a_checksum_cannot_be_left_out(folder):
    edit_config(folder, lambda config: config.pop("checksum"), seal=False)
    refused(folder, "config.json", "checksum")


def test_a_window_that_is_not_that_of_the_states_is_refused_with_any_checksum(folder):
    """Once a segmentation fault: the ring of keys was read with another length."""
    edit_config(folder, lambda config: config["settings"]["config"].update(window=1))
    refused(folder, "states.safetensors is damaged or was edited", "slots")


def block(tensors, name):
    return next(key for key in tensors if key.endswith(f"/{name}"))


def set_number(name, value):
    def change(tensors, _):
        tensors[block(tensors, name)].flatten()[-1] = value

    return change


def replace_tensor(name, make_tensor):
    def change(tensors, _):
        key = block(tensors, name)
        tensors[key] = make_tensor(tensors[key])

    return change


def set_series(**changes):
    return lambda _, header: header["series"][0].update(changes)


WRONG_STATES = {
    "a trajectory of a particle that does not exist": (set_number("trajectories", 16), "trajectories must lie between"),
    "a negative trajectory": (set_number("trajectories", -1), "trajectories must lie between"),
    "a far trajectory": (set_number("trajectories", 2**62), "trajectories must lie between"),
    "a negative clock": (set_number("n_slots", -1), "n_slots must lie between"),
    "a clock near the end of all numbers": (set_number("n_slots", 2**63 - 1), "n_slots must lie between"),
    "a position near the end of all numbers": (set_number("position", 2**63 - 1), "position must lie between"),
    "NaN keys": (set_number("keys", float("nan")), "keys must be finite"),
    "infinite values": (set_number("values", float("inf")), "values must be finite"),
    "a NaN input": (set_number("last", float("nan")), "last must be finite"),
    "a NaN in the encoder": (set_number("encoder/1", float("nan")), "encoder/1 must be finite"),
    "weights that do not add up": (set_number("log_weights", 0.0), "weights of some particles do not add up"),
    "NaN weights": (set_number("log_weights", float("nan")), "weights of some particles do not add up"),
    "fewer slots": (replace_tensor("keys", lambda keys: keys[:, :, 1:].contiguous()), "keys must be torch.float32 of"),
    "other numbers": (replace_tensor("values", lambda values: values.double()), "values must be torch.float32 of"),
    "narrow indices": (replace_tensor("trajectories", lambda one: one.int()), "trajectories must be torch.int64"),
    "one row too many": (replace_tensor("last", lambda last: torch.cat((last, last[:1]))), "last must be"),
    "a smaller encoder": (replace_tensor("encoder/1", lambda one: one[..., 1:].contiguous()), "encoder/1 must be"),
    "no encoder": (lambda tensors, _: tensors.pop(block(tensors, "encoder/1")), "the encoder remembers 2 tensors"),
    "no keys": (lambda tensors, _: tensors.pop(block(tensors, "keys")), "keys"),
    "an unknown tensor": (lambda tensors, _: tensors.update({"0/cake": torch.ones(1)}), "cake"),
    "a zero spread": (set_series(scaler={"kinds": ["standard"], "shift": [0.0], "spread": [0.0]}), "positive numbers"),
    "a NaN shift": (set_series(scaler={"kinds": ["standard"], "shift": [float("nan")], "spread": [1.0]}), "finite"),
    "another scaling": (set_series(scaler={"kinds": ["none"], "shift": [0.0], "spread": [1.0]}), "scaled as"),
    "two spreads": (set_series(scaler={"kinds": ["standard"], "shift": [0.0], "spread": [1.0, 1.0]}), "1 numbers"),
    "a time of another kind": (set_series(last_time=["2024-01-01", None, "s"]), "freq=1 has other times"),
    "a time out of reach": (set_series(last_time=2**70), "out of reach"),
    "a name that is a list of lists": (set_series(name=[["a"]]), "a series is called"),
    "a series without particles": (set_series(name="z"), "not the same"),
    "runs of another length": (set_series(runs=[0, 0]), "runs must hold 1 whole numbers"),
    "negative runs": (set_series(runs=[-1]), "runs must be at least 0"),
    "series that are a number": (lambda _, header: header.update(series=3), "damaged"),
}


@pytest.mark.parametrize("what", WRONG_STATES)
def test_states_that_cannot_be_are_refused_with_any_checksum(folder, what):
    change, message = WRONG_STATES[what]
    edit_states(folder, change)
    refused(folder, "states.safetensors is damaged or was edited", message)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers_are_refused(folder, value):
    path = folder / "model.safetensors"
    weights, header = read_tensors(path, ValueError)
    name = sorted(weights)[0]
    weights[name].flatten()[0] = value
    write_tensors(path, weights, header)
    refused(folder, "model.safetensors is damaged or was edited", f"{name!r} hold NaN or infinite")


def test_weights_of_another_architecture_are_refused(folder):
    edit_config(folder, lambda config: config["settings"]["config"].update(d_ff=9))
    refused(folder, "model.safetensors", "do not fit the settings in config.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda config: config.update(scaling={"units": [1.0]}), "'known_scaler' is missing"),
        (lambda config: config["scaling"].update(units=[0.0]), "units must hold positive numbers"),
        (lambda config: config["scaling"].update(units=[1.0, 2.0]), "units must hold 1 numbers"),
        (lambda config: config.update(settings=[]), "damaged"),
        (lambda config: config["settings"].update(config=7), "config must be a dictionary"),
        (lambda config: config["settings"].update(cake=7), "unknown settings"),
        (lambda config: config["settings"]["config"].update(encoder_layers=100_000), "encoder_layers must be at most"),
        (lambda config: config["settings"].update(n_particles=2**40), "n_particles must be at most"),
    ],
)
def test_impossible_settings_are_refused(folder, change, message):
    edit_config(folder, change)
    refused(folder, "config.json is damaged or was edited", message)


def test_deep_json_and_long_numbers_are_refused(folder):
    for text in ("[" * 100_000, '{"version": ' + "9" * 5000 + "}", "\0", '{"format": "\ud800"}'):
        (folder / "config.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        refused(folder, "config.json is not")


def test_a_folder_in_the_place_of_a_file_is_refused(folder):
    for name in ("states.safetensors", "config.json"):
        (folder / name).unlink()
        (folder / name).mkdir()
        refused(folder, f"{name} is not")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("closed", ["config.json", "model.safetensors", "states.safetensors", "the folder", "above it"])
def test_what_another_user_may_not_read_is_not_called_missing(folder, closed):
    loaded = Forecaster.load(folder)
    shut = {"the folder": folder, "above it": folder.parent}.get(closed, folder / closed)
    for above in (folder, *folder.parents):  # of pytest, which are closed to others
        above.chmod(0o755 if above != shut else 0o700)
        if above.name == "tmp" or above.parent == above.parent.parent:
            break
    shut.chmod(0o700 if shut.is_dir() else 0o600)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:  # no way back from another user, but the end of the process
        try:
            os.setuid(65534)
            for call in (Forecaster.load, loaded.save):
                try:
                    call(folder)
                except Exception as error:
                    os.write(writer, f"{type(error).__name__}: {error}\n".encode()[:2000])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        said = file.read()
    os.waitpid(child, 0)
    assert said.count("SavedForecasterError") == said.count("ermission denied") == 2, said


def test_states_of_a_folder_without_checksums_are_checked_too(request, tmp_path):
    """One flipped bit in `0/lines` was a segmentation fault in `predict`."""
    folder = shutil.copytree(request.config.rootpath / "tests" / KEPT, tmp_path / "model")
    path = folder / "states.safetensors"
    tensors, header = read_tensors(path, ValueError)
    tensors["0/lines"].flatten()[0] ^= 1 << 40
    write_tensors(path, tensors, header)
    refused(folder, "states.safetensors is damaged or was edited", "trajectories must lie between")


def test_weights_that_make_no_distribution_are_refused(folder):
    path = folder / "model.safetensors"
    weights, header = read_tensors(path, ValueError)
    for name, tensor in weights.items():
        if name.startswith("observation."):
            tensor.zero_()
    write_tensors(path, weights, header)
    refused(folder, "model.safetensors is damaged or was edited")


@pytest.fixture(scope="module")
def saved_view(tmp_path_factory):
    folder = tmp_path_factory.mktemp("viewed") / "model"
    make(seasons=6).fit(walks(60, 50), progress=False).save(folder)
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors["view/level"][0, 0].fill_(float("nan")), "level of the view holds NaN"),
        (lambda tensors: tensors["view/level"][0, 0].fill_(1e200), "level of the view holds numbers beyond"),
        (lambda tensors: tensors["view/largest"].fill_(-1), "must be at least 0"),
        (lambda tensors: tensors.pop("recent"), "last rows of float64 expected"),
        (lambda tensors: tensors["recent"].fill_(float("inf")), "the last rows hold infinite numbers"),
        (lambda tensors: tensors["view/n_rows"].fill_(-1), "n_rows of the view must lie between"),
        (lambda tensors: tensors.update({"view/errors": tensors["view/errors"][:, 1:]}), "errors of the view"),
        (lambda tensors: tensors.pop("view/trend"), "view/trend"),
        (lambda tensors: tensors["view/size"].fill_(-1.0), "at least 0"),
    ],
    ids=["NaN", "huge", "largest", "no rows", "infinite rows", "negative", "shape", "missing", "size"],
)
def test_views_that_cannot_be_are_refused_with_any_checksum(saved_view, tmp_path, change, message):
    folder = shutil.copytree(saved_view, tmp_path / "model")
    Forecaster.load(folder)
    edit_states(folder, lambda tensors, _: change(tensors))
    refused(folder, "states.safetensors is damaged or was edited", message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda scaling: scaling["view"].update(noise=0.0), "noise of a view must be a positive number"),
        (lambda scaling: scaling["view"].update(prior=[0.0]), "candidates"),
        (lambda scaling: scaling["view"].update(horizon=5), "another horizon"),
        (lambda scaling: scaling.pop("view"), "needs a view"),
        (lambda scaling: scaling.update(positive=[]), "positive must say it of 1 targets"),
        (lambda scaling: scaling.update(widths=[1.0, 1.0]), "widths must hold 4 numbers"),
        (lambda scaling: scaling.update(persistence=float("nan")), "persistence must lie between 0 and 1"),
    ],
    ids=["noise", "prior", "horizon", "none", "positive", "widths", "persistence"],
)
def test_constants_of_a_view_that_cannot_be_are_refused(saved_view, tmp_path, change, message):
    folder = shutil.copytree(saved_view, tmp_path / "model")
    edit_config(folder, lambda config: change(config["scaling"]))
    refused(folder, "config.json is damaged or was edited", message)


def test_a_model_that_could_not_be_loaded_again_is_not_saved(folder):
    forecaster = Forecaster.load(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with torch.no_grad():
        next(forecaster.model.parameters()).fill_(float("nan"))
    with pytest.raises(SavedForecasterError, match=r"is as it was: the weights '.*' hold NaN or infinite numbers"):
        forecaster.save(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert list(folder.parent.iterdir()) == [folder]
