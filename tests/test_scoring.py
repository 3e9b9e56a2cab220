"""From scorers of every kind to a table: one way through, whatever scores, shards,
reruns and missing numbers.
"""

import csv
import io
import weakref

import numpy as np
import pandas as pd
import pytest
from fakes import Here, Streaming, responses, truth

import rmlab
from rmlab import baselines, tables, toy
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


class Streams:
    """It streams, and is not a `Scorer`."""

    name, fingerprint = "streams", "v1"

    def stream(self, texts):
        raise AssertionError("its batches would be read by nobody")

    def __call__(self, prompts, answers):
        return characters(prompts, answers)

    prefer = __call__


@pytest.mark.parametrize("run", [score, prefer])
def test_an_object_that_streams_and_is_no_scorer_is_refused(run):
    with pytest.raises(DataError, match=r"rmlab\.scorers\.Scorer"):
        run(responses(2), Streams())


# What the table holds.


@pytest.mark.parametrize("run", [score, prefer])
def test_columns_that_are_constant_within_a_prompt_go_along(run, tmp_path):
    def words(prompts, *answers):
        return [float(len(answer)) for answer in answers[0]]

    words.prefer, words.fingerprint = words, "words"
    frame = responses(3)
    ids = frame["id"].astype(int)
    family = np.array(["a", None, "b"], object)[ids]
    frame = frame.assign(
        family=family,
        weight=ids / 2,
        row=np.arange(len(frame)),
        tags=[["list"]] * len(frame),
    )
    table = run(frame, words, store=tmp_path)
    assert list(table.columns) == [
        *(tables.SCORES if run is score else tables.PAIRS),
        "family",
        "weight",
    ]
    assert table.drop_duplicates("id")["family"].fillna("missing").tolist() == [
        "a",
        "missing",
        "b",
    ]
    read = read_scores if run is score else read_pairs
    back = read(next(tmp_path.glob("*.csv")))
    assert list(back.columns) == list(table.columns)
    assert back["weight"].tolist() == table["weight"].tolist()


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
        (lambda n: iter([(range(n), np.zeros(n)), ([0], np.zeros(1))]), "twice"),
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


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("cluster", [False, True])
def test_a_text_without_an_attribute_is_missing_however_it_was_scored(
    stored, cluster, tmp_path
):
    frame = responses(12)
    lacking = frame["response"].iloc[5]
    where = ({"store": tmp_path} if stored else {}) | (
        {"cluster": Here()} if cluster else {}
    )
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


@pytest.mark.parametrize("column", ["id", "label"])
def test_a_scorer_s_own_columns_replace_none_of_the_table(column, tmp_path):
    class Replacing(Streaming):
        columns = (column,)

        def stream(self, texts):
            for numbers, values in super().stream(texts):
                yield numbers, np.stack([values, values], axis=1)

    with pytest.raises(DataError, match=column):
        score(responses(2), Replacing(), store=tmp_path)
    assert not list(tmp_path.glob("*.csv"))


def test_a_rerun_forwards_what_is_new_and_is_equal(tmp_path):
    frame = responses()
    first = score(frame, Streaming(), store=tmp_path)
    again, more, changed = Streaming(seed=5), Streaming(), Streaming()
    second = score(frame.sample(frac=1, random_state=0), again, store=tmp_path)
    assert again.forwarded == []
    assert (
        second["score"].sort_values().tolist() == first["score"].sort_values().tolist()
    )
    assert first["score"].tolist() == expected(frame)
    score(responses(25), more, store=tmp_path)
    assert len(more.forwarded) == 5 * 6
    changed.fingerprint = "fake-2"
    score(frame, changed, store=tmp_path)
    assert len(changed.forwarded) == len(frame), "another model's scores are not taken"


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


@pytest.mark.parametrize("kind", ["classifier", "pairwise"])
def test_a_rerun_that_forwards_nothing_tokenises_no_text(
    zoo, tmp_path, monkeypatch, kind
):
    from transformers import PreTrainedTokenizerBase

    folder = zoo() if kind == "classifier" else zoo(task="causal")
    frame, run, tokenised = responses(4), prefer if kind == "pairwise" else score, []
    make = getattr(rmlab, kind)
    first = run(frame, make(folder, device="cpu"), store=tmp_path)
    for method in ("__call__", "encode"):
        original = getattr(PreTrainedTokenizerBase, method)

        def tokenise(self, text, *arguments, original=original, **options):
            tokenised.append(str(text))
            return original(self, text, *arguments, **options)

        monkeypatch.setattr(PreTrainedTokenizerBase, method, tokenise)
    again = run(frame, make(folder, device="cpu"), store=tmp_path)
    assert set(tokenised) <= {"", "a"}, "these show the tokenizer's special tokens"
    pd.testing.assert_frame_equal(again, first)
    before, after = (table.attrs["provenance"]["m"] for table in (first, again))
    assert {
        key: after[key] for key in ("template", "template_hash", "convention")
    }.items() <= before.items()
    assert before["truncated"] == 0
    assert "truncated" not in after, "nobody has counted"


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


def test_a_run_that_cuts_texts_writes_each_as_tokens_once(zoo, monkeypatch):
    frame = responses(4)
    n_written = []
    encode = TextEncoder.encode

    def counted(self, prompts, *answers):
        n_written.append(len(prompts))
        return encode(self, prompts, *answers)

    monkeypatch.setattr(TextEncoder, "encode", counted)
    score(frame, rmlab.classifier(zoo(), max_length=60, truncate="left"))
    assert sum(n_written) == len(frame)


@pytest.mark.parametrize("run", [score, prefer])
def test_each_of_several_models_leaves_the_memory_after_its_turn(zoo, run):
    frame = responses(2)
    kind, task = (
        ("classifier", "classifier") if run is score else ("pairwise", "causal")
    )
    models = [
        getattr(rmlab, kind)(zoo(task=task, seed=seed), name=str(seed), device="cpu")
        for seed in range(2)
    ]
    first, second = models
    alone = run(frame, first)
    stream, weights = second.stream, weakref.ref(first.backbone)

    def stream_alone(texts):
        assert weights() is None, "the first model is still there"
        return stream(texts)

    second.stream = stream_alone
    both = run(frame, models)
    pd.testing.assert_frame_equal(both[both["model"] == "0"], alone)
    assert run(frame, second).equals(
        both[both["model"] == "1"].reset_index(drop=True)
    ), "it loads again"


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
    check = score(LONG_RUN, scorer, store=tmp_path).attrs["provenance"]["fake"][
        "self_check"
    ]
    assert check["texts"] == scorer.checked == 6
    assert 0 < check["apart"] < 1e-5
    assert len(set(scorer.forwarded)) == len(scorer.forwarded) - 6 == len(LONG_RUN)
    score(LONG_RUN.head(60), unchecked)
    score(LONG_RUN, unchecked, store=tmp_path)
    assert unchecked.checked == 0, "a short run, and a rerun"


def test_a_difference_stops_the_run_before_a_score_is_kept(tmp_path):
    quarter = LONG_RUN["response"].iloc[len(LONG_RUN) // 4 :].head(3).tolist()
    half_blind = Checked(nan=quarter)
    half_blind.score_alone = lambda texts: np.zeros(len(texts))
    for scorer, named in [
        (Checked(off=0.1), "'fake'"),
        (Checked(off=np.nan), "nan"),
        (half_blind, "nan"),
    ]:
        with pytest.raises(DataError, match=named):
            score(LONG_RUN, scorer, store=tmp_path, allow_missing=True)
    assert not list(tmp_path.glob("*/*.records"))
    score(LONG_RUN, Checked(off=0.1, dtype="bfloat16"))
    scores = score(LONG_RUN, Checked(nan=quarter), allow_missing=True)
    assert scores.attrs["provenance"]["fake"]["self_check"]["apart"] == 0, (
        "a text without a score is no difference"
    )
    assert scores["score"].isna().sum() == 3


def test_a_dry_run_prints_the_tokens_forwarded(tmp_path, main):
    """Before the weights are there."""
    folder = toy.save_model(tmp_path / "m")
    scorer = rmlab.classifier(folder, device="cpu")
    texts, n_tokens = rmlab.load("mini"), []
    _ = scorer.backbone.packing  # what is tried before the first pass counts for no run

    def count(_, args, named):
        n_tokens.append(named["input_ids"].numel())

    with scorer.backbone.model.register_forward_pre_hook(count, with_kwargs=True):
        scorer(texts["prompt"].tolist(), texts["response"].tolist())
    (folder / "model.safetensors").unlink()
    code, out, err = main("score", "mini", folder, "--dry-run")
    assert code == 0, err
    (row,) = csv.DictReader(io.StringIO(out))
    assert int(row["tokens"]) == sum(n_tokens)


# The bar.


def become_kernel(monkeypatch):
    """The standard error of a Jupyter kernel, which is no terminal; set within a test,
    as pytest sets its own.
    """
    stderr = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})()
    monkeypatch.setattr("sys.stderr", stderr)
    monkeypatch.setattr("rmlab.scoring.run._BAR_DELAY", 0.0)
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    return stderr


def test_the_bar_of_a_resumed_run_says_what_the_store_had(monkeypatch, mini, tmp_path):
    kernel = become_kernel(monkeypatch)
    rmlab.score(mini.head(60), Characters(), store=tmp_path)
    assert "object" in kernel.getvalue()
    assert "store" not in kernel.getvalue()
    rmlab.score(mini, Characters(), store=tmp_path)
    assert "60 from the store" in kernel.getvalue()
    before = kernel.getvalue()
    rmlab.score(mini, Characters(), progress=False)
    assert kernel.getvalue() == before


def test_a_run_without_a_bar_takes_no_lock_of_bars(monkeypatch, mini):
    """Forked processes share the lock; one was killed with it, and all others waited
    for ever.
    """
    monkeypatch.setattr("tqdm.std.tqdm.get_lock", lambda: pytest.fail("taken"))
    rmlab.score(mini, "longest")


def test_no_bar_is_in_a_notebook_that_is_kept(monkeypatch, mini):
    kernel = become_kernel(monkeypatch)
    monkeypatch.setenv("TQDM_DISABLE", "1")
    rmlab.score(mini, characters)
    assert kernel.getvalue() == ""


def test_a_mapping_or_a_name_names_any_kind_of_model(mini, tmp_path):
    named = {
        "mine": characters,
        "base": "longest",
        "object": Characters(),
        "=1": baselines.shortest,
    }
    scores = rmlab.score(mini, named)
    assert scores["model"].unique().tolist() == [*named]
    assert [*scores.attrs["provenance"]] == [*named]
    expected_scores = rmlab.score(mini, "longest")["score"].tolist()
    assert scores.loc[scores["model"] == "base", "score"].tolist() == expected_scores
    one = rmlab.score(mini, "longest", name="x")
    assert one["model"].unique().tolist() == ["x"]
    stored = rmlab.score(mini, {"renamed": Characters()}, store=tmp_path)
    pd.testing.assert_frame_equal(read_scores(tmp_path), stored)
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
