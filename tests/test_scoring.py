"""From scorers of every kind to a table: one way through, whatever scores, shards,
reruns and missing numbers.
"""

import weakref

import numpy as np
import pandas as pd
import pytest
from fakes import Here, Streaming, responses, truth

import rmlab
from rmlab import baselines, tables
from rmlab.io import read_pairs, read_scores
from rmlab.scorers import Scorer
from rmlab.scorers.encoder import TextEncoder
from rmlab.scoring import prefer, score
from rmlab.scoring.run import LONG
from rmlab.tables import DataError


def characters(prompts, answers):
    return [len(answer) for answer in answers]


def expected(frame):
    return [
        truth(p, r) for p, r in zip(frame["prompt"], frame["response"], strict=True)
    ]


# What a scorer is.


class Characters:
    """The same numbers, by a name and a call."""

    name, fingerprint = "object", "v1"

    def __call__(self, prompts, answers):
        return characters(prompts, answers)


class StreamedCharacters(Scorer):
    name, fingerprint = "streamed", "v1"

    def stream(self, texts):
        for part in np.array_split(np.arange(len(texts)), 3):
            yield part, np.array([float(len(texts[i].answers[0])) for i in part])


@pytest.mark.parametrize(
    ("model", "stored"),
    [
        (Characters(), True),
        (StreamedCharacters(), True),
        (characters, False),
        ("longest", False),
    ],
)
def test_every_kind_of_scorer_gives_its_numbers_in_the_order_of_the_rows(
    tmp_path, model, stored
):
    frame = responses().sample(frac=1, random_state=0)
    for _ in range(2):
        scores = score(frame, model, store=tmp_path if stored else None)
        assert list(scores.columns) == tables.SCORES
        assert scores["score"].tolist() == frame["response"].str.len().tolist()
        assert (
            scores[tables.KEY].astype(str).to_numpy().tolist()
            == frame[tables.KEY].astype(str).to_numpy().tolist()
        )
        pd.testing.assert_frame_equal(tables.check_scores(scores), scores)


# What the table holds.


@pytest.mark.parametrize("run", [score, prefer])
def test_columns_that_are_constant_within_a_prompt_go_along(run, tmp_path):
    def words(prompts, *answers):
        return [float(len(answer)) for answer in answers[0]]

    words.prefer, words.fingerprint = words, "words"
    frame = responses(3)
    family = np.array(["a", None, "b"], object)[frame["id"].astype(int)]
    table = run(
        frame.assign(family=family, row=range(len(frame))), words, store=tmp_path
    )
    own = tables.SCORES if run is score else tables.PAIRS
    assert list(table.columns) == [*own, "family"]
    assert table.drop_duplicates("id")["family"].fillna("-").tolist() == ["a", "-", "b"]
    read = read_scores if run is score else read_pairs
    assert list(read(tmp_path).columns) == list(table.columns)


MESSAGES = [{"role": "user", "content": "prompt"}]


@pytest.mark.parametrize(
    "prompts", [["a", "b", "c", "d"], ["a", MESSAGES, MESSAGES, '[{"role": "user"}]']]
)
def test_identical_texts_are_scored_once(prompts):
    frame = responses(4, slots=1).assign(response="same")
    frame["prompt"] = [prompt for prompt in prompts for _ in range(2)]
    scorer, n_texts = Streaming(), []
    assert score(frame, scorer)["score"].tolist() == expected(frame)
    score(
        frame,
        lambda prompts, answers: n_texts.append(len(prompts)) or [1.0] * len(prompts),
    )
    assert [len(scorer.forwarded)] == n_texts == [len(set(map(str, prompts)))]


@pytest.mark.parametrize("n", [3, 50])
def test_shards_are_whole_prompts_and_make_up_everything(n):
    frame = responses(20)
    parts = [score(frame, characters, shard=(i + 1, n)) for i in range(n)]
    n_prompts = [part["id"].nunique() for part in parts]
    assert sum(n_prompts) == 20
    assert max(n_prompts) - min(n_prompts) <= 1
    order = [*tables.KEY]
    merged, whole = pd.concat(parts), score(frame, characters)
    pd.testing.assert_frame_equal(
        *(table.sort_values(order, ignore_index=True) for table in (merged, whole))
    )
    for shard in ("0/4", (1.5, 3)):
        with pytest.raises(DataError, match="shard: "):
            score(frame, characters, shard=shard)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda n: [[1.0]] * n, r"shape \(12, 1\)"),
        (lambda n: [1.0] * (n - 1), r"shape \(11,\)"),
        (lambda n: [None] + [1.0] * (n - 1), "None"),
        (
            lambda n: [1.0] * (n - 1) + [np.nan],
            "id 1.*rejected.*slot 2.* nan",
        ),
        (
            lambda n: iter([(range(n - 1), np.zeros(n - 1))]),
            "1 of 12 .*'rejected 2 to 1'",
        ),
        (lambda n: iter([(range(n), np.zeros(n)), ([0], np.zeros(1))]), "1 of 12"),
        (lambda n: iter([(range(n), np.zeros(3))]), r"shape \(3,\) for 12"),
    ],
)
def test_wrong_results_and_wrong_streams_are_named(result, message):
    def strange(prompts, answers):
        return result(len(prompts))

    streaming = Streaming("strange")
    streaming.stream = lambda texts: result(len(texts))
    scorer = streaming if hasattr(result(1), "__next__") else strange
    with pytest.raises(DataError, match=f"'strange'.*{message}"):
        score(responses(2), scorer)


class Rating(Streaming):
    """It rates two attributes, and one text lacks an attribute."""

    columns = ("helpful", "honest")

    def __init__(self, lacking, **options):
        super().__init__(**options)
        self.lacking = lacking

    def stream(self, texts):
        for numbers, values in super().stream(texts):
            rows = np.stack([values, values + 1, values * 2], axis=1)
            rows[
                [texts[number].answers[-1] == self.lacking for number in numbers], 2
            ] = np.nan
            yield numbers, rows


@pytest.mark.parametrize("cluster", [None, Here()])
def test_a_text_without_an_attribute_is_missing_however_it_was_scored(
    cluster, tmp_path
):
    frame = responses(12)
    lacking = frame["response"].iloc[5]
    where = {"store": tmp_path, "cluster": cluster}
    with pytest.raises(DataError, match="is nan"):
        score(frame, Rating(lacking), **where)
    names = ["score", *Rating.columns]
    for _ in range(2):
        scores = score(frame, Rating(lacking), allow_missing=True, **where)
        assert scores.columns.tolist() == [*tables.SCORES, *Rating.columns]
        assert np.flatnonzero(scores[names].isna().any(axis=1)).tolist() == [5]
        assert scores.loc[5, names].isna().all()
        assert scores["honest"].drop(5).tolist() == [
            2 * value for i, value in enumerate(expected(frame)) if i != 5
        ]
        assert scores.attrs["provenance"]["fake"]["missing"] == 1


# Reruns.


def test_a_rerun_forwards_what_is_new_and_is_equal(tmp_path):
    frame = responses()
    score(frame, Streaming(), store=tmp_path)
    for more, fingerprint, n_forwarded in [
        (frame, "fake-1", 0),
        (responses(25), "fake-1", 5 * 6),
        (frame, "fake-2", len(frame)),
    ]:
        scorer = Streaming(seed=5)
        scorer.fingerprint = fingerprint
        shuffled = more.sample(frac=1, random_state=0)
        scores = score(shuffled, scorer, store=tmp_path)
        assert scores["score"].tolist() == expected(shuffled)
        assert len(scorer.forwarded) == n_forwarded


def test_a_finished_table_has_the_latest_score_of_every_text(tmp_path):
    frame = responses(4)
    lacking = Streaming(nan=frame["response"].head(1))
    score(frame, lacking, store=tmp_path, allow_missing=True)
    score(frame.head(6), Streaming(), store=tmp_path)
    table = read_scores(tmp_path).sort_values(tables.KEY)
    assert table["score"].tolist() == expected(frame.sort_values(tables.KEY))


def test_a_function_with_a_fingerprint_is_stored_in_batches(tmp_path):
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
    scores = score(frame, judge, store=tmp_path, batch=16)
    assert scores["score"].tolist() == expected(frame)
    assert calls == [16, 16, 16, 16, 12]
    assert sorted(
        run["scored"] for run in scores.attrs["provenance"]["judge"]["runs"]
    ) == [28, 32]


@pytest.mark.parametrize("column", ["id", "label"])
def test_a_scorer_s_own_columns_replace_none_of_the_table(column):
    scorer = Rating(None)
    scorer.columns = (column, "honest")
    with pytest.raises(DataError, match=column):
        score(responses(2), scorer)


@pytest.mark.parametrize("kind", ["classifier", "pairwise"])
def test_a_rerun_that_forwards_nothing_encodes_no_text(
    zoo, tmp_path, monkeypatch, kind
):
    folder = zoo() if kind == "classifier" else zoo(task="causal")
    frame = responses(4)
    run = prefer if kind == "pairwise" else score
    make = getattr(rmlab, kind)
    first = run(frame, make(folder, device="cpu"), store=tmp_path)
    encode = TextEncoder.encode

    def refuse(self, prompts, *answers):
        assert not {*prompts} & {*frame["prompt"]}, "but those that show special tokens"
        return encode(self, prompts, *answers)

    monkeypatch.setattr(TextEncoder, "encode", refuse)
    again = run(frame, make(folder, device="cpu"), store=tmp_path)
    pd.testing.assert_frame_equal(again, first)
    before, after = (table.attrs["provenance"]["m"] for table in (first, again))
    assert before["truncated"] == 0
    assert "truncated" not in after, "nobody has counted"


def test_two_checkpoints_of_one_name_do_not_replace_one_another(zoo, tmp_path):
    """Two checkpoints of two runs, both in a folder called final."""
    responses, folders = (
        rmlab.load("mini").head(6),
        [zoo(name="final", seed=seed) for seed in range(2)],
    )
    first = rmlab.score(responses, folders[0], store=tmp_path, dtype="float32")
    with pytest.raises(DataError, match=r"'final'.*--name"):
        rmlab.score(responses, folders[1], store=tmp_path, dtype="float32")
    pd.testing.assert_frame_equal(rmlab.read_scores(tmp_path), first)
    rmlab.score(responses, folders[1], store=tmp_path, name="second")
    assert set(rmlab.read_scores(tmp_path)["model"]) == {"final", "second"}


@pytest.mark.parametrize("kind", ["classifier", "implicit_reward"])
@pytest.mark.parametrize("n_first", [6, 24])
def test_a_resumed_run_counts_the_texts_that_are_cut(zoo, tmp_path, kind, n_first):
    folder, frame = zoo(task=kind if kind == "classifier" else "causal"), responses(4)
    frame.loc[::2, "response"] += " It goes on and on and on." * 5

    def cut(n_rows, store=None):
        scorer = getattr(rmlab, kind)(
            folder, device="cpu", max_length=60, truncate="left"
        )
        return score(frame.head(n_rows), scorer, store=store).attrs["provenance"]["m"][
            "truncated"
        ]

    assert cut(n_first, tmp_path) == n_first // 2
    assert cut(24, tmp_path) == cut(24) == 12


def test_each_of_several_models_leaves_the_memory_after_its_turn(zoo):
    frame = responses(2)
    first, second = [
        rmlab.classifier(zoo(seed=seed), name=str(seed), device="cpu")
        for seed in range(2)
    ]
    alone = score(frame, first)
    stream, weights = second.stream, weakref.ref(first.backbone)

    def stream_alone(texts):
        assert weights() is None, "the first model is still there"
        return stream(texts)

    second.stream = stream_alone
    both = score(frame, [first, second])
    pd.testing.assert_frame_equal(both[both["model"] == "0"], alone)


# The self-check before a long run.

LONG_RUN = responses(LONG // 6 + 1)


class Checked(Streaming):
    """A fake that can score texts alone, in `dtype`, with an error of `off`."""

    def __init__(self, dtype="float32", off=0.0, **options):
        super().__init__(**options)
        self.dtype, self.off, self.checked = dtype, off, 0

    def provenance(self):
        return {"dtype": self.dtype}

    def score_alone(self, texts):
        self.checked += len(texts)
        return np.array([self.score_text(text) + self.off for text in texts])


def test_a_long_run_begins_with_a_check_that_provenance_keeps(tmp_path):
    scorer, unchecked = Checked(off=1e-6), Checked(off=9.0)
    provenance = score(LONG_RUN, scorer, store=tmp_path).attrs["provenance"]["fake"]
    assert provenance["self_check"]["texts"] == scorer.checked == 6
    assert 0 < provenance["self_check"]["apart"] < 1e-5
    score(LONG_RUN.head(60), unchecked)
    score(LONG_RUN, unchecked, store=tmp_path)
    assert unchecked.checked == 0, "a short run, and a rerun"


@pytest.mark.parametrize("off", [0.1, np.nan])
def test_a_difference_stops_the_run_before_a_score_is_kept(tmp_path, off):
    with pytest.raises(DataError, match="'fake'"):
        score(LONG_RUN, Checked(off=off), store=tmp_path, allow_missing=True)
    assert not list(tmp_path.glob("*/*.records"))
    if off == 0.1:
        score(LONG_RUN, Checked(off=off, dtype="bfloat16"))


def test_a_text_without_a_score_is_no_difference():
    quarter = LONG_RUN["response"].iloc[len(LONG_RUN) // 4 :].head(3).tolist()
    scores = score(LONG_RUN, Checked(nan=quarter), allow_missing=True)
    assert scores.attrs["provenance"]["fake"]["self_check"]["apart"] == 0
    assert scores["score"].isna().sum() == 3


# The bar.


def test_a_run_without_a_bar_takes_no_lock_of_bars(monkeypatch, mini):
    """Forked processes share the lock; one was killed with it, and all others waited
    for ever.
    """
    monkeypatch.setattr("tqdm.std.tqdm.get_lock", lambda: pytest.fail("taken"))
    rmlab.score(mini, "longest")


def test_a_mapping_or_a_name_names_any_kind_of_model(mini):
    named = {"mine": characters, "base": "longest", "=1": baselines.shortest}
    scores = rmlab.score(mini, named)
    assert scores["model"].unique().tolist() == [*named]
    assert [*scores.attrs["provenance"]] == [*named]
    one = rmlab.score(mini, ["longest", "shortest"], name=["x", "y"])
    assert one["model"].unique().tolist() == ["x", "y"]
    is_base = (scores["model"] == "base").to_numpy()
    assert scores["score"][is_base].tolist() == one["score"][: len(mini)].tolist()
    with pytest.raises(DataError, match="dtype"):
        rmlab.score(mini, "longest", dtype="float32")


CRITERION = {"role": "system", "content": "Prefer brief answers."}


@pytest.mark.parametrize("kind", ["classifier", "implicit_reward", "remote"])
def test_a_criterion_is_a_system_message_before_every_conversation(zoo, kind):
    frame = responses(2, slots=1)
    chats = [[CRITERION, {"role": "user", "content": p}] for p in frame["prompt"]]
    options = {"system": CRITERION["content"]}
    if kind == "remote":
        options |= {"kind": "vllm", "model": "m", "tokenizer": zoo(), "examine": False}
        asked = rmlab.remote("http://127.0.0.1:9", **options)
        plain = rmlab.remote("http://127.0.0.1:9", **options | {"system": None})
        answers = frame["response"].tolist()
        written = asked.writer.write(frame["prompt"].tolist(), answers)
        assert written.texts == plain.writer.write(chats, answers).texts
    else:
        folder = zoo(task="causal" if kind == "implicit_reward" else "classifier")
        asked, plain = (getattr(rmlab, kind)(folder, **o) for o in (options, {}))
        expected = score(frame.assign(prompt=chats), plain)["score"]
        np.testing.assert_allclose(score(frame, asked)["score"], expected, rtol=1e-5)
    assert asked.fingerprint != plain.fingerprint
