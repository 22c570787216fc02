"""Loading accounts for every name; exports come back equal."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from rollick.config.job import ModelSettings
from rollick.errors import DataError
from rollick.models import export
from rollick.models.export import export_model
from rollick.models.load import load_causal_lm
from rollick.models.weights import named_weights
from tests.models.tiny import FAMILIES, tiny_model_folder


def load(folder, **settings):
    return load_causal_lm(ModelSettings(path=str(folder), **settings))


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_load_and_export_give_the_same_bytes_back(tmp_path, family, tie):
    """Case 124, round trip; tied weights are written once."""
    folder = tiny_model_folder(tmp_path / "in", family, tie=tie)
    model = load(folder)
    weights = {name: tensor.detach() for name, tensor in named_weights(model).items()}
    export_model(model, weights, tmp_path / "out")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("in", "out"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert ("lm_head.weight" in after) is not tie
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ids = torch.arange(5)[None]
    assert torch.equal(again(ids).logits, model(ids).logits)
    assert (tmp_path / "out" / "generation_config.json").is_file()


def test_an_export_can_change_the_dtype_and_says_so_in_the_config(tmp_path):
    model = load(tiny_model_folder(tmp_path / "in"))
    export_model(model, named_weights(model), tmp_path / "out", torch.bfloat16)
    assert {tensor.dtype for tensor in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "bfloat16"
    assert model.dtype == torch.float32


def test_a_large_export_is_cut_into_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(export, "MAX_SHARD", "100KB")
    model = load(tiny_model_folder(tmp_path / "in"))
    export_model(model, named_weights(model), tmp_path / "out")
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 2
    again = load(tmp_path / "out")
    assert all(torch.equal(tensor, named_weights(again)[name]) for name, tensor in named_weights(model).items())


def test_one_report_lists_missing_unexpected_and_misshapen_weights(tmp_path):
    """Case 124: an extra, a missing, a renamed and a misshapen tensor at once."""
    folder = tiny_model_folder(tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    weights["model.extra.weight"] = torch.zeros(2)
    del weights["model.norm.weight"]
    weights["model.layers.0.mlp.up.weight"] = weights.pop("model.layers.0.mlp.up_proj.weight")
    weights["model.layers.1.mlp.down_proj.weight"] = torch.zeros(3, 3)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError) as caught:
        load(folder)
    message = str(caught.value)
    assert "2 missing from the files: model.layers.0.mlp.up_proj.weight, model.norm.weight" in message
    assert "2 in the files but not in the model: model.extra.weight, model.layers.0.mlp.up.weight" in message
    assert "1 of another shape: model.layers.1.mlp.down_proj.weight (file (3, 3), model (64, 128))" in message


def test_a_folder_that_is_missing_empty_or_damaged_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match="there is no folder '/no/such/place'"):
        load("/no/such/place")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no config\.json"):
        load(tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="is a file"):
        load(tmp_path / "file")
    folder = tiny_model_folder(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(b"short")
    with pytest.raises(DataError, match="cannot load '"):
        load(folder)
    (folder / "config.json").write_text("{")
    with pytest.raises(DataError, match="cannot read the config of '"):
        load(folder)
    (folder / "config.json").write_text('{"model_type": "no-such-model"}')
    with pytest.raises(DataError, match="cannot read the config of '"):
        load(folder)
    with pytest.raises(DataError, match="no/such-model"):
        load("no/such-model")


def test_dropout_never_acts(tmp_path):
    folder = tiny_model_folder(tmp_path / "m", "qwen2", attention_dropout=0.5)
    model = load(folder)
    ids = torch.arange(5)[None]
    assert torch.equal(model(ids).logits, model(ids).logits)


def test_the_dtype_of_the_weights_is_the_one_asked_for(tmp_path):
    folder = tiny_model_folder(tmp_path / "m")
    assert load(folder, dtype="bfloat16").dtype == torch.bfloat16
    assert load_causal_lm(ModelSettings(path=str(folder), dtype="bfloat16"), torch.float32).dtype == torch.float32
