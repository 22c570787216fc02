"""The right tokenizer, all end tokens, and one sentence when there is none."""

import json

import pytest
from transformers import GenerationConfig

from rollick.config.job import ModelSettings
from rollick.errors import DataError
from rollick.models.tokenizer import end_token_ids, load_tokenizer
from tests.models.tiny import CHATML, tiny_config, tiny_model_folder, tiny_tokenizer


def ends(folder, tokenizer):
    return end_token_ids(ModelSettings(path=str(folder)), tokenizer)


@pytest.fixture
def folder(tmp_path):
    """A model folder without weights."""
    path = tmp_path / "model"
    tiny_config().save_pretrained(path)
    tiny_tokenizer().save_pretrained(path)
    return path


def fails(**settings):
    with pytest.raises(DataError) as caught:
        load_tokenizer(ModelSettings(**settings))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_models_own_tokenizer_and_template(folder):
    tokenizer = load_tokenizer(ModelSettings(path=str(folder)))
    assert tokenizer.chat_template == CHATML
    assert tokenizer.encode("7+8") == tiny_tokenizer().encode("7+8")


def test_another_tokenizer_and_another_template(folder, tmp_path):
    tiny_tokenizer(vocab_size=300).save_pretrained(tmp_path / "other")
    (tmp_path / "template.jinja").write_text("{% generation %}{{ messages[0].content }}{% endgeneration %}")
    settings = ModelSettings(
        path=str(folder), tokenizer=str(tmp_path / "other"), chat_template=str(tmp_path / "template.jinja")
    )
    tokenizer = load_tokenizer(settings)
    assert len(tokenizer) == len(tiny_tokenizer(vocab_size=300))
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "x"


def test_a_folder_without_a_tokenizer_is_refused(folder, tmp_path):
    """transformers would make an empty one up from config.json alone."""
    (folder / "tokenizer.json").unlink()
    assert "holds no tokenizer" in fails(path=str(folder))
    assert "model.path: there is no folder" in fails(path=str(tmp_path / "missing"))
    assert "model.tokenizer: there is no folder" in fails(path=str(folder), tokenizer=str(tmp_path / "missing"))


def test_a_hub_name_without_a_network_is_one_sentence(monkeypatch):
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
    assert "there is no folder 'someone/model', and no model hub" in fails(path="someone/model")


def test_a_damaged_tokenizer_or_config_is_refused(folder):
    (folder / "config.json").write_text("{")
    assert "model.path" in fails(path=str(folder))


def test_bad_templates_are_named(folder, tmp_path):
    bad = tmp_path / "bad.jinja"
    bad.write_text("line\n{% for %}")
    assert f"{bad}:2: not valid Jinja" in fails(path=str(folder), chat_template=str(bad))
    assert "missing.jinja' cannot be read" in fails(path=str(folder), chat_template=str(tmp_path / "missing.jinja"))


def test_a_tokenizer_larger_than_the_model_is_refused(folder, tmp_path):
    tiny_config(vocab_size=270).save_pretrained(tmp_path / "small")
    message = fails(path=str(tmp_path / "small"), tokenizer=str(folder))
    assert f"has {len(tiny_tokenizer())} tokens" in message
    assert "has embeddings for 270" in message


def test_end_ids_are_the_union_of_everything_that_names_one(folder):
    """Case 92: generation config {0, 7}, model config 2, tokenizer 2, template 2."""
    tokenizer = load_tokenizer(ModelSettings(path=str(folder)))
    assert ends(folder, tokenizer) == (2,)
    GenerationConfig(eos_token_id=[0, 7]).save_pretrained(folder)
    assert ends(folder, tokenizer) == (0, 2, 7)


def test_the_end_of_a_chat_turn_counts_although_nothing_declares_it(folder):
    """A base model with a borrowed template: declared is `<|endoftext|>`, learnt is `<|im_end|>`."""
    tiny_config(eos_token_id=0).save_pretrained(folder)
    tokenizer = load_tokenizer(ModelSettings(path=str(folder)))
    tokenizer.eos_token = "<|endoftext|>"
    assert ends(folder, tokenizer) == (0, 2)
    tokenizer.chat_template = None
    assert ends(folder, tokenizer) == (0,)


def test_no_end_token_at_all_is_refused(folder):
    tiny_config(eos_token_id=None).save_pretrained(folder)
    tokenizer = tiny_tokenizer(chat_template=None)
    tokenizer.eos_token = None
    with pytest.raises(DataError, match="names no end token"):
        ends(folder, tokenizer)
    (folder / "generation_config.json").write_text("{")
    with pytest.raises(DataError, match=r"cannot read '.*generation_config\.json'"):
        ends(folder, tokenizer)


@pytest.mark.parametrize("family", ["qwen3_5", "llama"])
def test_a_saved_model_folder_declares_its_end_token(tmp_path, family):
    path = tiny_model_folder(tmp_path / family, family)
    assert json.loads((path / "generation_config.json").read_text())["eos_token_id"] == 2
    assert ends(path, load_tokenizer(ModelSettings(path=str(path)))) == (2,)
