import json

import numpy as np
import pandas as pd
import pytest
from fakes import Here, Streaming, responses, truth
from tokenizers import Tokenizer

from rmlab import baselines, tables
from rmlab.io import read_pairs, read_scores
from rmlab.metrics import pairs
from rmlab.scoring import prefer, score
from rmlab.tables import DataError


def characters(prompts, answers):
    return [len(answer) for answer in answers]


def expected(frame):
    return [truth(p, r) for p, r in zip(frame["prompt"], frame["response"], strict=True)]


def test_plain_function_in_the_order_of_the_rows():
    frame = responses().sample(frac=1, random_state=0)
    scores = score(frame, characters)
    assert list(scores.columns) == tables.SCORES
    assert scores["score"].tolist() == frame["response"].str.len().tolist()
    assert scores[tables.KEY].astype(str).to_numpy().tolist() == frame[tables.KEY].astype(str).to_numpy().tolist()
    pd.testing.assert_frame_equal(tables.check_scores(scores), scores)


@pytest.mark.parametrize("run", [score, prefer])
def test_columns_that_are_constant_within_a_prompt_go_along(run, tmp_path):
    def words(prompts, *answers):
        return [float(len(answer)) for answer in answers[0]]

    words.prefer, words.fingerprint = words, "words"
    frame = responses(3)
    family = np.array(["a", None, "b"], object)[frame["id"].astype(int)]
    frame = frame.assign(family=family, weight=frame["id"].astype(int) / 2, row=np.arange(len(frame)))
    frame["tags"] = [["list"]] * len(frame)
    found = run(frame, words, store=tmp_path)
    contract = tables.SCORES if run is score else tables.PAIRS
    assert list(found.columns) == [*contract, "family", "weight"]
    by_id = found.drop_duplicates("id").set_index("id")
    assert by_id["family"].fillna("missing").to_dict() == {"0": "a", "1": "missing", "2": "b"}
    assert by_id["weight"].to_dict() == {"0": 0.0, "1": 0.5, "2": 1.0}
    read = read_scores if run is score else read_pairs
    back = read(next(tmp_path.glob("*.csv")))
    assert list(back.columns) == list(found.columns)
    assert back["weight"].tolist() == found["weight"].tolist()
    if run is score:
        assert list(pairs(found).columns) == [*tables.PAIRS, "family", "weight"]


MESSAGES = [{"role": "user", "content": "prompt"}]


@pytest.mark.parametrize("prompts", [["a", "b", "c", "d"], ["a", MESSAGES, MESSAGES, '[{"role": "user"}]']])
def test_identical_texts_are_scored_once(prompts):
    frame = responses(4, slots=1).assign(response="same")
    frame["prompt"] = [prompt for prompt in prompts for _ in range(2)]
    scorer, n_distinct = Streaming(), len(set(map(str, prompts)))
    assert score(frame, scorer)["score"].tolist() == expected(frame)
    assert len(scorer.forwarded) == n_distinct
    seen = []
    score(frame, lambda prompts, answers: seen.append(len(prompts)) or [1.0] * len(prompts))
    assert seen == [n_distinct]


def test_several_scorers_are_concatenated_with_their_provenance():
    frame = responses(3)
    scores = score(frame, [Streaming("a"), characters])
    assert scores["model"].unique().tolist() == ["a", "characters"]
    assert scores.attrs["provenance"]["a"]["model_id"] == "fake/fake"
    assert scores.attrs["provenance"]["a"]["texts"] == 18
    assert scores.attrs["provenance"]["characters"]["scorer"] == "test_scoring.characters"
    with pytest.raises(DataError, match="two scorers are named 'a'"):
        score(frame, [Streaming("a"), Streaming("a")])


@pytest.mark.parametrize("n", [3, 50])
def test_shards_are_whole_prompts_and_make_up_everything(n):
    frame = responses(20)
    parts = [score(frame, characters, shard=(i + 1, n)) for i in range(n)]
    prompts = [set(part["id"]) for part in parts]
    assert sum(map(len, prompts)) == len(set().union(*prompts)) == 20
    assert max(map(len, prompts)) - min(map(len, prompts)) <= 1
    whole = score(frame, characters)
    merged = pd.concat(parts).merge(whole, on=tables.KEY, suffixes=("", "_whole"))
    assert len(merged) == len(whole)
    assert (merged["score"] == merged["score_whole"]).all()
    pd.testing.assert_frame_equal(parts[0], score(frame, characters, shard=f"1/{n}"))
    for shard in ("0/4", "5/4", "a/b", (1.5, 3), 3):
        with pytest.raises(DataError, match="shard: "):
            score(frame, characters, shard=shard)


def test_rerun_forwards_nothing_and_is_equal(tmp_path):
    frame = responses()
    first = score(frame, Streaming(), store=tmp_path)
    again = Streaming(seed=5)
    second = score(frame.sample(frac=1, random_state=0), again, store=tmp_path)
    assert again.forwarded == []
    assert second["score"].sort_values().tolist() == first["score"].sort_values().tolist()
    assert first["score"].tolist() == expected(frame)
    more = Streaming()
    score(responses(25), more, store=tmp_path)
    assert len(more.forwarded) == 5 * 6, "only what is new"
    other = Streaming()
    other.fingerprint = "fake-2"
    score(frame, other, store=tmp_path)
    assert len(other.forwarded) == len(frame), "another model's scores are not taken"


def test_function_with_a_fingerprint_is_stored_in_batches(tmp_path):
    calls = []

    def judge(prompts, answers):
        calls.append(len(prompts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return [truth(p, a) for p, a in zip(prompts, answers, strict=True)]

    judge.fingerprint = "judge-v1"
    frame = responses(10)
    with pytest.raises(KeyboardInterrupt):
        score(frame, judge, store=tmp_path, batch=16)
    assert score(frame, judge, store=tmp_path, batch=16)["score"].tolist() == expected(frame)
    assert calls == [16, 16, 16, 16, 12]


def test_prompts_stay_together_however_the_rows_stand(tmp_path):
    frame = responses(400).sort_values(["label", "slot"])
    seen = []
    scorer = Streaming()
    scorer.stream = lambda texts: seen.append(texts) or Streaming.stream(scorer, texts)
    scores = score(frame, scorer, store=tmp_path)
    assert scores["score"].tolist() == expected(frame)
    (texts,) = seen
    prompts = np.array([text.prompt for text in texts])
    assert (prompts[1:] != prompts[:-1]).sum() == 399, "the texts of a prompt are neighbours"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda n: [[1.0]] * n, r"shape \(6, 1\)"),
        (lambda n: [1.0] * (n - 1), r"shape \(5,\)"),
        (lambda n: 1.0, r"shape \(\)"),
        (lambda n: ["good"] * n, "first .*good"),
        (lambda n: [None] + [1.0] * (n - 1), "first None"),
        (lambda n: [1.0] * (n - 1) + [np.nan], "1 of 6 .* nan .*id 0.*rejected.*slot 2"),
        (lambda n: [np.inf] * n, "6 of 6 .* inf"),
    ],
)
def test_wrong_results_are_named(result, message):
    def strange(prompts, answers):
        return result(len(prompts))

    with pytest.raises(DataError, match=f"'strange'.*{message}"):
        score(responses(1), strange)


class Rating(Streaming):
    """It rates two attributes, and one text lacks an attribute."""

    columns = ("helpful", "honest")

    def __init__(self, lacking, **options):
        super().__init__(**options)
        self.lacking = lacking

    def stream(self, texts):
        for numbers, values in super().stream(texts):
            rows = np.stack([values, values + 1, values * 2], axis=1)
            rows[[texts[number].answers[-1] == self.lacking for number in numbers], 2] = np.nan
            yield numbers, rows


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("cluster", [False, True])
def test_a_text_without_an_attribute_is_missing_however_it_was_scored(stored, cluster, tmp_path):
    frame = responses(12)
    lacking = frame["response"].iloc[5]
    where = ({"store": tmp_path} if stored else {}) | ({"cluster": Here()} if cluster else {})
    with pytest.raises(DataError, match=r"1 of .* scores are not finite, first nan"):
        score(frame, Rating(lacking), **where)
    for _ in range(2):
        scores = score(frame, Rating(lacking), allow_missing=True, **where)
        names = ["score", *Rating.columns]
        assert scores.columns.tolist() == [*tables.SCORES, *Rating.columns]
        assert np.flatnonzero(scores[names].isna().any(axis=1)).tolist() == [5]
        assert scores.loc[5, names].isna().all()
        assert scores["honest"].drop(5).tolist() == [2 * value for i, value in enumerate(expected(frame)) if i != 5]
        assert scores.attrs["provenance"]["fake"]["missing"] == 1


def test_missing_scores_are_counted_and_never_stored(tmp_path):
    frame = responses(10)
    bad = frame["response"].iloc[[3, 30]].tolist()
    with pytest.raises(DataError, match="not finite, first nan"):
        score(frame, Streaming(nan=bad), store=tmp_path)
    scores = score(frame, Streaming(nan=bad), store=tmp_path, allow_missing=True)
    assert np.flatnonzero(scores["score"].isna()).tolist() == [3, 30]
    assert scores.attrs["provenance"]["fake"]["missing"] == 2
    mended = Streaming()
    assert score(frame, mended, store=tmp_path)["score"].tolist() == expected(frame)
    assert len(mended.forwarded) == 2


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (lambda n: [(range(n - 1), np.zeros(n - 1))], "no score for 1 of 12 texts, first: 'rejected 2 to 1'"),
        (lambda n: [(range(n), np.zeros(n)), ([0], np.zeros(1))], "twice"),
        (lambda n: [([0, 0], np.zeros(2))], "twice"),
        (lambda n: [(range(n), np.zeros(3))], r"shape \(3,\) for 12 texts"),
    ],
)
def test_wrong_streams_are_named(batches, message):
    scorer = Streaming()
    scorer.stream = lambda texts: batches(len(texts))
    with pytest.raises(DataError, match=message):
        score(responses(2), scorer)


def test_what_is_no_scorer_is_named(tmp_path):
    frame = responses(1)
    for run, model, error, message in [
        (score, 3, TypeError, "int 3"),
        (score, [], DataError, "model"),
        (prefer, "longest", DataError, "longest"),
        (prefer, characters, TypeError, "characters"),
    ]:
        with pytest.raises(error, match=message):
            run(frame, model)
    for name, value in (("dtype", "bfloat16"), ("store", tmp_path)):
        with pytest.raises(DataError, match=name):
            score(frame, characters, **{name: value})


def test_baselines_by_name_are_not_stored(tmp_path):
    frame = responses(3)
    scores = score(frame, ["longest", baselines.shortest, Streaming()], store=tmp_path)
    assert scores["model"].unique().tolist() == ["longest", "shortest", "fake"]
    assert scores["score"].iloc[:18].tolist() == frame["response"].str.len().tolist()
    assert len(list(tmp_path.glob("*/*.records"))) == 1


def test_strings_that_look_like_models_become_models(monkeypatch, tmp_path):
    made = []

    def fake(model, **options):
        made.append((str(model), options))
        scorer = Streaming(str(model))
        scorer.fingerprint = str(model)
        return scorer

    monkeypatch.setattr("rmlab.scorers.classifier", fake)
    models = ["owner/name", "./folder", tmp_path, "longest"]
    scores = score(responses(1), models, dtype="float32")
    assert [name for name, _ in made] == ["owner/name", "./folder", str(tmp_path)]
    assert all(options == {"dtype": "float32"} for _, options in made)
    assert scores["model"].unique().tolist() == [*map(str, models)]


@pytest.mark.parametrize("kind", ["classifier", "implicit_reward", "pairwise"])
def test_a_rerun_that_forwards_nothing_tokenises_no_text(tmp_path, monkeypatch, kind):
    """Up to 0.1.0 a rerun tokenised every text to find its score."""
    from transformers import PreTrainedTokenizerBase

    import rmlab
    from rmlab import toy

    task = "classification" if kind == "classifier" else "causal"
    folder, frame = toy.save_model(tmp_path / "m", **({} if kind == "classifier" else {"task": task})), responses(4)
    run, seen = prefer if kind == "pairwise" else score, []
    make = getattr(rmlab, kind)
    first = run(frame, make(folder, device="cpu"), store=tmp_path / "s")
    for method in ("__call__", "encode"):
        original = getattr(PreTrainedTokenizerBase, method)

        def tokenise(self, text, *arguments, original=original, **options):
            seen.append(str(text))
            return original(self, text, *arguments, **options)

        monkeypatch.setattr(PreTrainedTokenizerBase, method, tokenise)
    again = run(frame, make(folder, device="cpu"), store=tmp_path / "s")
    pd.testing.assert_frame_equal(again, first)
    assert seen, "the ten conversations of the fingerprint"
    assert not [text for text in seen if "to 0" in text or "prompt 0" in text]


@pytest.mark.parametrize("change", ["ids", "normaliser", "template"])
def test_another_tokenizer_of_the_same_size_is_another_fingerprint(tmp_path, change):
    from tokenizers import normalizers

    import rmlab
    from rmlab import toy

    words = toy.tokenizer()
    before = rmlab.classifier(toy.save_model(tmp_path / "a", words=words))
    size = len(words)
    if change == "ids":
        state = json.loads(words.backend_tokenizer.to_str())
        vocabulary = state["model"]["vocab"]
        first, second = (token for token in vocabulary if token in ("e", "a"))
        vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
        words._tokenizer = Tokenizer.from_str(json.dumps(state))
    elif change == "normaliser":
        words.backend_tokenizer.normalizer = normalizers.Lowercase()
    else:
        words.chat_template += " "
    assert len(words) == size
    after = rmlab.classifier(toy.save_model(tmp_path / "b", words=words))
    assert after.checkpoint.content == before.checkpoint.content
    assert after.fingerprint != before.fingerprint
