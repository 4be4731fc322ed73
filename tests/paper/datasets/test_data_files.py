import functools
import gc
import hashlib
import http.server
import logging
import sys
import threading
import warnings

import pytest
from helpers.excerpts import zipped

from smct_paper.datasets import DataFileNotFoundError
from smct_paper.datasets.files import DataFile, find_file, locate_file

CSV = b"a,b\n1,2\n"
SHA256 = hashlib.sha256(CSV).hexdigest()


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


@pytest.fixture
def publisher(tmp_path):
    """A web server on this machine, and the folder that it serves."""
    folder = tmp_path / "publisher"
    folder.mkdir()
    (folder / "numbers.csv").write_bytes(CSV)
    zipped(folder / "numbers.zip", folder / "numbers.csv")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    """Only the folders of the test are searched."""
    monkeypatch.delenv("SMC_TRANSFORMER_DATA", raising=False)
    monkeypatch.setenv("SMC_TRANSFORMER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "data"


def numbers(address=None, sha256=SHA256, **others):
    return DataFile(
        names=("numbers.csv", "numbers.zip"),
        publisher="Office of Numbers",
        page="https://numbers.invalid/page",
        licence="CC0",
        csv="numbers.csv",
        address=address,
        download="numbers.zip" if (address or "").endswith("zip") else "numbers.csv",
        sha256=sha256,
        **others,
    )


def test_folders_are_searched_in_their_order(tmp_path, monkeypatch, folders):
    places = {"argument": tmp_path / "argument", "environment": tmp_path / "environment", "cache": folders}
    for folder in places.values():
        folder.mkdir(parents=True)
        (folder / "numbers.csv").write_bytes(CSV)
    monkeypatch.setenv("SMC_TRANSFORMER_DATA", str(places["environment"]))
    assert find_file(numbers(), places["argument"]).parent == places["argument"]
    assert find_file(numbers()).parent == places["environment"]
    (places["environment"] / "numbers.csv").rename(places["environment"] / "numbers.zip")
    assert find_file(numbers()).name == "numbers.zip"
    monkeypatch.delenv("SMC_TRANSFORMER_DATA")
    assert find_file(numbers()).parent == folders


def test_a_file_at_hand_of_another_version_is_taken_and_logged(tmp_path, caplog):
    (tmp_path / "numbers.csv").write_bytes(CSV + b"3,4\n")
    with caplog.at_level(logging.INFO):
        assert locate_file(numbers(), tmp_path) == tmp_path / "numbers.csv"
    assert "not a version that the project was tested with" in caplog.text
    caplog.clear()
    other = hashlib.sha256(CSV + b"3,4\n").hexdigest()
    with caplog.at_level(logging.INFO):
        locate_file(numbers(tested_sha256=(other,)), tmp_path)
    assert caplog.text == ""


@pytest.mark.parametrize("name", ["numbers.csv", "numbers.zip"])
def test_a_file_that_is_nowhere_is_downloaded_once(publisher, folders, caplog, capfd, name):
    address, served = publisher
    with caplog.at_level(logging.INFO):
        path = locate_file(numbers(f"{address}/{name}"))
    assert path == folders / name
    assert path.read_bytes() == (served / name).read_bytes()
    assert f"sha256 of numbers.csv: {SHA256}" in caplog.text
    assert [entry.name for entry in folders.iterdir()] == [name]
    (served / name).unlink()
    assert locate_file(numbers(f"{address}/{name}")) == path
    assert capfd.readouterr().err == ""  # no bar where nobody watches


def test_a_bar_on_a_terminal(publisher, monkeypatch, capfd):
    address, _ = publisher
    monkeypatch.setenv("FORCE_COLOR", "1")  # how rich is told that somebody watches
    locate_file(numbers(f"{address}/numbers.csv"))
    shown = capfd.readouterr().err
    assert "numbers.csv" in shown
    assert "8/8 bytes" in shown


def test_a_download_of_another_version_is_refused_and_not_kept(publisher, folders):
    address, served = publisher
    (served / "numbers.csv").write_bytes(CSV + b"3,4\n")
    with pytest.raises(DataFileNotFoundError, match=rf"instead of {SHA256}; a file put there by hand is accepted"):
        locate_file(numbers(f"{address}/numbers.csv"))
    assert list(folders.iterdir()) == []


def test_a_download_without_a_known_hash_is_recognised_by_its_first_line(publisher, folders, caplog):
    address, served = publisher
    file = numbers(f"{address}/numbers.csv", sha256=None, first_line="a,b")
    (served / "numbers.csv").write_bytes(b"<html>please log in</html>\n")
    with pytest.raises(DataFileNotFoundError, match="its first line lacks 'a,b'"):
        locate_file(file)
    assert list(folders.iterdir()) == []
    (served / "numbers.csv").write_bytes(CSV)
    with caplog.at_level(logging.INFO):
        assert locate_file(file) == folders / "numbers.csv"
    assert SHA256 in caplog.text


def test_offline_the_error_says_what_from_where_goes_into_which_folder(publisher, tmp_path, folders):
    address, _ = publisher
    message = ""
    try:
        locate_file(numbers(f"{address}/elsewhere/numbers.csv"), tmp_path)
    except FileNotFoundError as error:
        message = str(error)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # pooch leaves the connection of a failed request to python
        gc.collect()
    assert message.startswith(f"numbers.csv or numbers.zip is not in {tmp_path}, {folders}, and downloading it failed")
    assert "404" in message
    assert f"Get it from {address}/elsewhere/numbers.csv (Office of Numbers), and put it into {tmp_path}" in message
    assert "SMC_TRANSFORMER_DATA" in message
    with pytest.raises(DataFileNotFoundError, match=r"downloading it failed \(Connect"):
        locate_file(numbers("http://127.0.0.1:9/numbers.csv"))


def test_a_file_behind_a_login_is_asked_for(folders):
    with pytest.raises(DataFileNotFoundError, match=r"without a login\. Get it from https://numbers\.invalid/page"):
        locate_file(numbers())


def test_folders_that_are_none_are_named(tmp_path, monkeypatch):
    with pytest.raises(DataFileNotFoundError, match=r"data_dir names '.*nowhere', which is not a folder"):
        locate_file(numbers(), str(tmp_path / "nowhere"))
    monkeypatch.setenv("SMC_TRANSFORMER_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataFileNotFoundError, match="SMC_TRANSFORMER_DATA names"):
        locate_file(numbers())


def test_without_pooch_the_error_names_the_extra(publisher, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ImportError, match=r"pip install 'smc-transformer\[experiments\]'"):
        locate_file(numbers(f"{publisher[0]}/numbers.csv"))
