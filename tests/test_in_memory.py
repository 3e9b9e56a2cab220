"""Models in memory, as people have them while they train: scored as they are, and left
as they were.
"""

import copy

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedTokenizerFast,
)

import rmlab
from rmlab.tables import DataError

PROMPTS = ["What is the capital of France?"] * 2 + ["Why?"]
RESPONSES = ["Paris, a city on the Seine.", "I am sorry, no.", "Because 7 + 8 = 15."]
CLASSES = {
    "classifier": AutoModelForSequenceClassification,
    "causal": AutoModelForCausalLM,
}
MAKERS = {"classifier": rmlab.classifier, "causal": rmlab.implicit_reward}
TEXTS = PROMPTS, RESPONSES


def load(folder, task="classifier"):
    """The model and its tokenizer as a training script holds them."""
    model = CLASSES[task].from_pretrained(folder, dtype=torch.float32)
    return model, PreTrainedTokenizerFast.from_pretrained(folder)


def snapshot(model):
    """All that scoring must leave alone."""
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors = [
        (tensor.requires_grad, tensor.grad, tensor.dtype, tensor.is_inference())
        for tensor in (*model.parameters(), *model.buffers())
    ]
    modules = [
        (
            module.training,
            sorted(vars(module)),
            *module._forward_hooks,
            *module._forward_pre_hooks,
        )
        for module in model.modules()
    ]
    config = model.config.to_dict(), model.config._attn_implementation
    return weights, tensors, modules, config


def assert_same(before, after):
    weights_before, *rest_before = before
    weights_after, *rest_after = after
    assert weights_before.keys() == weights_after.keys()
    for name, tensor in weights_before.items():
        assert tensor.equal(weights_after[name]), name
    assert rest_before == rest_after


def assert_near(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.std(expected))


@torch.no_grad()
def read_alone(scorer, compute):
    """What `compute` gives for each text as a batch of one."""
    texts = scorer.prepare(*TEXTS).ids
    return [compute(torch.tensor(ids[None].astype(int))).item() for ids in texts]


@pytest.mark.parametrize(
    ("task", "architecture", "settings"),
    [
        ("classifier", "llama", {}),
        ("causal", "llama", {}),
        ("classifier", "bert", {"initializer_range": 0.5}),
    ],
)
def test_scores_are_those_of_the_saved_model(zoo, task, architecture, settings):
    folder = zoo(architecture, task=task, **settings)
    expected = MAKERS[task](folder, dtype="float32", device="cpu")(*TEXTS)
    model, tokenizer = load(folder, task)
    scorer = MAKERS[task](model, tokenizer=tokenizer)
    assert_near(scorer(*TEXTS), expected)
    alone = scorer.forward_alone(scorer.prepare(*TEXTS), np.arange(3))
    assert_near(alone, expected)


@pytest.mark.parametrize("task", CLASSES)
def test_a_model_in_training_is_left_as_it_was(zoo, task):
    model, tokenizer = load(zoo(task=task, attention_dropout=0.5), task)
    model.train()
    # People freeze parts of a model, which are then in evaluation.
    model.base_model.layers[0].eval()
    # Transformers 4 has the other name.
    getattr(model, "activation_checkpointing_enable", model.train)()
    before = snapshot(model)
    torch.manual_seed(7)
    scorer = MAKERS[task](model, tokenizer=tokenizer)
    first = scorer(*TEXTS)
    assert torch.equal(torch.get_rng_state(), torch.manual_seed(7).get_state())
    assert_same(before, snapshot(model))
    np.testing.assert_array_equal(scorer(*TEXTS), first)
    # And can be trained on.
    ids = torch.tensor([[5, 6, 7, 8]])
    model(input_ids=ids).logits.sum().backward()
    assert all(weight.grad is not None for weight in model.base_model.parameters())


class CountingBackend:
    """Of torch.compile: runs the graph as it is, and counts how often."""

    def __init__(self):
        self.calls = 0

    def __call__(self, graph, inputs):
        def run(*given):
            self.calls += 1
            return graph.forward(*given)

        return run


def compile_wrapped(model, backend):
    model.model = torch.compile(model.model, backend=backend)


def compile_whole(model, backend):
    model.compile(backend=backend)


@pytest.mark.parametrize(
    ("compile_model", "is_called"),
    # A backbone is called by itself, not through the whole model's compiled pass.
    [(compile_wrapped, True), (compile_whole, False)],
)
def test_texts_go_through_a_compiled_model_in_packs(zoo, compile_model, is_called):
    folder = zoo()
    expected = rmlab.classifier(folder, device="cpu")(*TEXTS)
    model, tokenizer = load(folder)
    backend = CountingBackend()
    compile_model(model, backend)
    scorer = rmlab.classifier(model, tokenizer=tokenizer)
    assert_near(scorer(*TEXTS), expected)
    assert scorer.backbone.packing.refused is None, scorer.backbone.packing
    assert bool(backend.calls) == is_called


@pytest.mark.parametrize("task", CLASSES)
def test_another_step_of_training_gives_other_scores(zoo, task):
    folder = zoo(task=task)
    model, tokenizer = load(folder, task)
    scorer = MAKERS[task](model, tokenizer=tokenizer)
    before = scorer(*TEXTS)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    changed = scorer(*TEXTS)
    assert np.abs(changed - before).max() > 1e-3
    anew = MAKERS[task](copy.deepcopy(model), tokenizer=tokenizer)(*TEXTS)
    np.testing.assert_allclose(changed, anew, atol=1e-6)


def test_a_head_of_the_table_in_memory(zoo):
    folder = zoo(seed=1)
    model, tokenizer = load(folder)
    # Eurus's layout: the same backbone under another head.
    model.regression_head = torch.nn.Linear(32, 1, bias=False)
    del model.score
    scorer = rmlab.classifier(model, tokenizer=tokenizer)
    assert scorer.head.name == "regression"

    def compute(row):
        return model.regression_head(model.model(row).last_hidden_state[0, -1])

    assert_near(scorer(*TEXTS), read_alone(scorer, compute))


def test_policy_and_reference_in_memory(zoo):
    folders = [zoo(task="causal", seed=seed) for seed in (0, 1)]
    expected = rmlab.implicit_reward(*folders, device="cpu")(*TEXTS)
    policy, tokenizer = load(folders[0], "causal")
    reference, _ = load(folders[1], "causal")
    scorer = rmlab.implicit_reward(policy, reference, tokenizer=tokenizer)
    assert_near(scorer(*TEXTS), expected)
    mixed = rmlab.implicit_reward(
        policy, folders[1], tokenizer=tokenizer, fingerprint="step-300"
    )
    assert mixed.fingerprint is not None
    assert_near(mixed(*TEXTS), expected)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")
@pytest.mark.parametrize("task", CLASSES)
def test_adapters_of_peft_are_part_of_the_model(zoo, task):
    peft = pytest.importorskip("peft")
    kind = {"classifier": "SEQ_CLS", "causal": "CAUSAL_LM"}[task]
    config = peft.LoraConfig(
        r=4,
        target_modules=["q_proj", "v_proj"],
        task_type=kind,
        init_lora_weights=False,
    )
    model, tokenizer = load(zoo(task=task), task)
    plain = MAKERS[task](model, tokenizer=tokenizer)(*TEXTS)
    adapted = peft.get_peft_model(model, config)
    if task == "classifier":
        with torch.no_grad():
            adapted.base_model.model.score.modules_to_save["default"].weight.mul_(3)
    adapted.train()
    before = snapshot(adapted)
    found = MAKERS[task](adapted, tokenizer=tokenizer)(*TEXTS)
    assert_same(before, snapshot(adapted))
    assert np.abs(found - plain).max() > 1e-3
    merged = copy.deepcopy(adapted).merge_and_unload()
    expected = MAKERS[task](merged, tokenizer=tokenizer)(*TEXTS)
    assert_near(found, expected)


def test_its_scores_are_stored_under_a_name_alone(zoo, tmp_path):
    responses = rmlab.load("mini").head(8)
    model, tokenizer = load(zoo())

    def score(step):
        scorer = rmlab.classifier(model, tokenizer, fingerprint=step, name=step)
        return rmlab.score(responses, scorer, store=tmp_path)["score"]

    with pytest.raises(DataError, match="fingerprint"):
        score(None)
    stored = score("run-7-step-300")
    with torch.no_grad():
        model.score.weight.mul_(2)
    np.testing.assert_array_equal(score("run-7-step-300"), stored)
    np.testing.assert_allclose(score("run-7-step-400"), 2 * stored, rtol=1e-4)


def test_a_model_of_which_this_process_holds_a_part_is_refused(zoo):
    model, tokenizer = load(zoo())
    wrapped = type("FullyShardedDataParallel", (torch.nn.Module,), {})()
    wrapped.module = model
    with pytest.raises(DataError, match="FSDP"):
        rmlab.classifier(wrapped, tokenizer=tokenizer)
    model.score.weight.ds_id = 3
    with pytest.raises(DataError, match="DeepSpeed"):
        rmlab.classifier(model, tokenizer=tokenizer)


def test_options_of_files_are_refused_beside_a_model_in_memory(zoo):
    model, tokenizer = load(zoo())
    with pytest.raises(DataError, match="tokenizer"):
        rmlab.classifier(model)
    for options in ({"base": "x"}, {"device": "cpu"}, {"dtype": "float32"}):
        (name,) = options
        with pytest.raises(DataError, match=name):
            rmlab.classifier(model, tokenizer=tokenizer, **options)
    with pytest.raises(DataError, match="fingerprint"):
        rmlab.classifier(zoo(), fingerprint="a")
    with pytest.raises(DataError, match="PreTrainedModel"):
        rmlab.classifier(torch.nn.Linear(2, 1), tokenizer=tokenizer)
    language_model, _ = load(zoo(task="causal"), "causal")
    with pytest.raises(DataError, match="implicit_reward"):
        rmlab.classifier(language_model, tokenizer=tokenizer)
    with pytest.raises(DataError, match="classifier"):
        rmlab.implicit_reward(model, tokenizer=tokenizer)


def test_other_machines_do_not_get_a_model_in_memory(zoo):
    model, tokenizer = load(zoo())
    assert not rmlab.classifier(model, tokenizer=tokenizer).travels
    assert rmlab.classifier(zoo()).travels


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_adapters_that_are_not_in_the_layers_are_refused(zoo):
    peft = pytest.importorskip("peft")
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4)
    model, tokenizer = load(zoo(task="causal"), "causal")
    adapted = peft.get_peft_model(model, config)
    with pytest.raises(DataError, match="PROMPT_TUNING"):
        rmlab.implicit_reward(adapted, tokenizer=tokenizer)


def test_the_class_is_that_of_the_model_in_memory(zoo):
    """Not that of the file it began from."""
    model, tokenizer = load(zoo())
    model.config.architectures = ["LlamaForTokenClassification"]
    scorer = rmlab.classifier(model, tokenizer=tokenizer)
    assert scorer.head.name == "labels"
    expected = read_alone(scorer, lambda row: model.eval()(input_ids=row).logits)
    assert_near(scorer(*TEXTS), expected)


def test_the_padding_token_is_part_of_the_fingerprint(zoo):
    folder = zoo()
    model, tokenizer = load(folder)
    options = {"tokenizer": tokenizer, "fingerprint": "step-3"}
    before = rmlab.classifier(model, **options).fingerprint
    assert rmlab.classifier(model, **options).fingerprint == before
    model.config.pad_token_id = 7
    assert rmlab.classifier(model, **options).fingerprint != before
