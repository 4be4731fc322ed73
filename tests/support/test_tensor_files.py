"""Files of tensors: read as written, replaced in one go, and refused with a reason."""

import pytest
import torch
from safetensors.torch import save_file

from smc_transformer.support.tensor_files import check_format, read_tensors, write_tensors


class RefusedError(ValueError):
    pass


def test_tensors_and_header_come_back(tmp_path):
    path = tmp_path / "file.safetensors"
    tensors = {"a": torch.arange(6.0).view(2, 3).T, "b/c": torch.zeros(1, requires_grad=True)}
    write_tensors(path, tensors, {"numbers": [1, 2.5, None]})
    found, header = read_tensors(path, RefusedError)
    assert header == {"numbers": [1, 2.5, None]}
    for name, tensor in tensors.items():
        assert torch.equal(found[name], tensor)
    assert [file.name for file in tmp_path.iterdir()] == ["file.safetensors"]


def test_a_write_that_fails_leaves_the_file_that_was_there(tmp_path):
    path = tmp_path / "file.safetensors"
    write_tensors(path, {"a": torch.ones(1)}, {})
    with pytest.raises(TypeError):
        write_tensors(path, {"a": torch.zeros(1)}, {"not of JSON": object()})
    assert read_tensors(path, RefusedError)[0]["a"] == 1


def test_files_that_cannot_be_read_say_why(tmp_path):
    path = tmp_path / "file.safetensors"
    with pytest.raises(RefusedError, match=r"file\.safetensors is missing"):
        read_tensors(path, RefusedError)
    save_file({"a": torch.zeros(9)}, path)
    assert read_tensors(path, RefusedError)[1] == {}
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(RefusedError, match=r"file\.safetensors is not readable"):
        read_tensors(path, RefusedError)
    save_file({"a": torch.zeros(9)}, path, metadata={"header": "{"})
    with pytest.raises(RefusedError, match=r"file\.safetensors is not readable"):
        read_tensors(path, RefusedError)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ([], "file is not a cake of smc-transformer"),
        ({"format": "bread", "version": 1}, "file is not a cake of smc-transformer"),
        ({"format": "cake"}, "file has format version None, this release reads up to 2"),
        ({"format": "cake", "version": 3}, "file has format version 3, this release reads up to 2; update"),
    ],
)
def test_foreign_and_newer_formats_are_refused(header, message, tmp_path):
    with pytest.raises(RefusedError, match=message):
        check_format(tmp_path / "file", header, "a cake", ("cake", 2), RefusedError)


def test_older_versions_are_read(tmp_path):
    check_format(tmp_path / "file", {"format": "cake", "version": 1}, "a cake", ("cake", 2), RefusedError)
