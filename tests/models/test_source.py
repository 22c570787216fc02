import pytest

from rollick.errors import DataError
from rollick.models.source import require_source


def test_a_folder_is_enough(tmp_path):
    require_source(str(tmp_path), "model.path")


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("nowhere/at/all", "model.path: there is no folder 'nowhere/at/all'$"),
        ("./nowhere", "there is no folder './nowhere'$"),
        ("models/smollm2-135m", "no model hub to look the name up; `rollick fetch smollm2` makes it$"),
        ("some-org/some-model", "there is no folder 'some-org/some-model', and no model hub"),
    ],
)
def test_what_is_not_there_is_said_at_once(path, sentence, tmp_path, monkeypatch):
    """Not after a minute of retries, and not as a connection error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with pytest.raises(DataError, match=sentence):
        require_source(path, "model.path")


def test_a_hub_that_answers_leaves_the_rest_to_the_loader(monkeypatch):
    monkeypatch.setattr("rollick.models.source._hub_answers", lambda: True)
    require_source("some-org/some-model", "model.path")


def test_a_file_is_not_a_folder(tmp_path):
    file = tmp_path / "model.safetensors"
    file.touch()
    with pytest.raises(DataError, match="is a file; give the folder"):
        require_source(str(file), "model.path")
