"""The explorer's selection held to loops, its state to what a person sees, and its errors to what they must say."""

import asyncio

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmlab import baselines, metrics, toy
from rmlab.benchmarks import load
from rmlab.io import write_scores
from rmlab.plots import plot_token_rewards
from rmlab.scorers.classifier import classifier
from rmlab.scoring import score
from rmlab.tables import STYLES, DataError
from rmlab.widgets import Selection, detail, explore, playground, token_rewards
from rmlab.widgets.debounce import Debounced
from rmlab.widgets.index import build
from rmlab.widgets.page import page, read, serve
from rmlab.widgets.selection import OUTCOMES, cell_shares, frame, match, share_won
from rmlab.widgets.tokens import sentences, tokens_html

STYLE_OR_NONE = st.none() | st.tuples(st.sampled_from(STYLES), st.sampled_from(STYLES))
LIMIT = st.none() | st.floats(-3, 3)


@pytest.fixture(scope="module")
def responses():
    return load("mini")


@pytest.fixture(scope="module")
def scores(responses):
    fond = toy.scorer(responses, skill=1.0, style=1.0, name="fond")
    fair = toy.scorer(responses, skill=2.0, style=0.0, name="fair")
    return score(responses, [fond, fair])


@pytest.fixture
def view(scores, responses):
    return explore(scores, responses)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    import torch

    torch.set_num_threads(1)
    folder = toy.save_model(tmp_path_factory.mktemp("qwen3"), "qwen3")
    return classifier(folder, dtype="float32", name="tiny")


@pytest.fixture
def texts():
    def make(scores):
        first = scores[scores["model"] == scores["model"].iloc[0]].drop(columns=["model", "score"])
        said = [f"Text {k} about {'Rome' if k % 3 else 'rivers'}" for k in range(len(first))]
        return first.assign(prompt=[f"What of {key}?" for key in first["id"]], response=said)

    return make


def slow_match(scores, responses, selection):
    """The same by loops over the pairs table: {(domain, id): (n, lost, margin, flips)}."""
    texts = responses.groupby(["domain", "id"], sort=False)
    pairs = metrics.pairs(scores)
    by_model = {m: p.reset_index(drop=True) for m, p in pairs.groupby("model", sort=False)}
    first = by_model[selection.models[0]]
    second = by_model[selection.models[1]] if len(selection.models) > 1 else first
    found = {}
    for (_, a), (_, b) in zip(first.iterrows(), second.iterrows(), strict=True):
        group = texts.get_group((a["domain"], a["id"]))
        spoken = "\n".join([group["prompt"].iloc[0], *group["response"]]).lower()
        flip = a["outcome"] != b["outcome"]
        low, high = selection.margin
        if (
            selection.domain in (None, a["domain"])
            and selection.subset in (None, a["subset"])
            and (selection.cell is None or selection.cell == (a["chosen_style"], a["rejected_style"]))
            and (
                selection.outcome is None
                or (flip if selection.outcome == "flip" else a["outcome"] == selection.outcome)
            )
            and (low is None or a["margin"] >= low)
            and (high is None or a["margin"] <= high)
            and selection.text.lower() in spoken
        ):
            found.setdefault((a["domain"], a["id"]), []).append((a["margin"], flip))
    return {
        key: (len(rows), sum(m < 0 for m, _ in rows), np.mean([m for m, _ in rows]), sum(f for _, f in rows))
        for key, rows in found.items()
    }


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    domain=st.sampled_from([None, "chat", "safety"]),
    subset=st.sampled_from([None, "safety-refuse", "chat"]),
    cell=STYLE_OR_NONE,
    outcome=st.none() | st.sampled_from([o for o in OUTCOMES if o != "missing"]),
    low=LIMIT,
    span=st.floats(0, 3),
    text=st.sampled_from(["", "rome", "what of", "nowhere", "text 1"]),
)
def test_a_selection_finds_what_loops_find(make_scores, texts, domain, subset, cell, outcome, low, span, text):
    scores = make_scores(seed=3)
    margin = (low, None if low is None else low + span)
    selection = Selection(("a", "b"), domain, subset, cell, outcome, margin, text)
    index = build(scores.sample(frac=1, random_state=1), texts(scores))
    table = frame(index, selection, match(index, selection))
    expected = slow_match(scores, texts(scores), selection)
    found = {(r.domain, r.id): (r.n_pairs, r.lost, r.margin, r.flips) for r in table.itertuples()}
    assert found.keys() == expected.keys()
    for key, values in found.items():
        assert values == pytest.approx(expected[key])


def test_the_matrix_is_that_of_the_metrics(scores, responses):
    index = build(scores, responses)
    share, n = cell_shares(index, Selection(("fond",), domain="math"), "fond")
    own = metrics.pairs(scores[(scores["model"] == "fond") & (scores["domain"] == "math")])
    np.testing.assert_allclose(share, metrics.matrix(own).to_numpy())
    assert n.sum() == len(own)


def test_the_matrix_averages_domains_of_unequal_size(make_scores, texts):
    scores = make_scores({"chat": 9, "math": 3, "code": 4, "safety-refuse": 6, "safety-response": 5}, models=("a",))
    index = build(scores, texts(scores))
    share, _ = cell_shares(index, Selection(("a",)), "a")
    np.testing.assert_allclose(share, metrics.matrix(scores).to_numpy())
    assert share_won(index, Selection(("a",)), "a")[0] == pytest.approx(metrics.summary(scores)["overall"].item())


def test_flips_come_first_then_the_widest_disagreement(scores, responses):
    index = build(scores, responses)
    found = match(index, Selection(("fond", "fair")))
    assert (np.diff(found.flips) <= 0).all()
    apart = np.abs(found.margin - found.other)
    assert all(apart[k] >= apart[k + 1] for k in range(len(apart) - 1) if found.flips[k] == found.flips[k + 1])


def test_missing_scores_are_missing_never_lost(make_scores, texts):
    scores = make_scores(models=("a", "b"))
    scores.loc[0, "score"] = np.nan
    index = build(scores, texts(scores))
    assert frame(index, Selection(outcome="missing"), match(index, Selection(outcome="missing")))["n_pairs"].sum() == 3
    assert len(match(index, Selection(("a", "b"), outcome="flip")).prompts) <= len(index.prompts)
    known = match(index, Selection(order="data"))
    assert np.isfinite(known.margin).all()
    assert known.n[0] == 9


def test_a_selection_survives_its_link_and_its_code(scores, responses):
    selection = Selection(
        ("fair", "fond"), "math", None, ("plain", "markdown"), "loss", (None, -0.5), "x = 1 & y?", "best"
    )
    assert Selection.from_query("?token=abc&" + selection.query()) == selection
    view = explore(scores, responses, selection=selection)
    namespace = {
        "rmlab": type("rmlab", (), {"explore": staticmethod(explore)}),
        "scores": scores,
        "responses": responses,
    }
    again = eval(view.code, namespace)
    pd.testing.assert_frame_equal(again.frame, view.frame)
    assert again.selection == view.selection


def test_controls_and_code_tell_the_same_story(view):
    view.select(domain="math", outcome="loss", cell=("concise", "plain"))
    assert view.controls.domain.value == "math"
    assert view.matrices.grids[0].value == 1
    view.matrices.grids[0].value = 2
    assert view.selection.cell == ("concise", "markdown")
    view.controls.other.value = "fair"
    view.controls.text.value = "triangle"
    assert view.selection.models == ("fond", "fair")
    assert view.selection.text == "triangle"
    assert len(view.prompt_list.buttons.items) == min(len(view.frame), 20)
    view.matrices.grids[1].value = -1
    assert view.selection.cell is None


def test_changing_the_model_forgets_the_margin_of_the_other(view):
    view.controls.margin.value = (view.controls.margin.min, 0)
    assert view.selection.margin[1] == pytest.approx(0, abs=1e-9)
    view.controls.model.value = "fair"
    assert view.selection.margin == (None, None)


def test_paging_and_opening(view):
    assert view.prompt_list.before.disabled
    assert not view.prompt_list.after.disabled
    view.prompt_list.after.click()
    assert "21–40 of 64" in view.prompt_list.count.value
    view.prompt_list.buttons.value = 3
    assert view.selection.prompt == tuple(view.frame.loc[23, ["benchmark", "domain", "id"]])
    key = tuple(view.frame.loc[63, ["benchmark", "domain", "id"]])
    view.select(prompt=key)
    assert "61–64 of 64" in view.prompt_list.count.value
    assert view.prompt_list.buttons.value == 3


def test_next_and_previous_prompt_go_through_all_pages(view):
    keys = view.frame[["benchmark", "domain", "id"]].itertuples(index=False, name=None)
    assert view.panel.previous.disabled
    for place, key in enumerate(keys):
        assert view.selection.prompt == key
        assert f"{place + 1} of 64" in view.panel.place.value
        assert view.prompt_list.buttons.value == place % 20
        view.panel.next.click()
    assert view.panel.next.disabled
    view.step(1)
    assert "64 of 64" in view.panel.place.value
    view.panel.previous.click()
    assert "63 of 64" in view.panel.place.value
    assert "61–64 of 64" in view.prompt_list.count.value
    view.select(domain="math", prompt=("mini", "chat", "1"))
    assert "not in this selection" in view.panel.place.value
    view.panel.next.click()
    assert "1 of 16" in view.panel.place.value


def test_all_takes_a_filter_away_as_on_the_page(view):
    view.select(outcome="loss", domain="math", subset="math")
    view.select(outcome="all")
    assert view.selection.outcome is None
    assert view.selection.domain == "math"
    view.select(domain="all", subset="all")
    assert len(view.frame) == 64
    assert view.controls.outcome.value == ""
    assert view.selection == view.select(outcome="all").selection


def test_all_is_a_domain_where_data_has_one(responses):
    renamed = responses.assign(domain="all", id=responses["domain"].astype(str) + responses["id"].astype(str))
    view = explore(score(renamed.assign(benchmark="own"), baselines.longest), renamed.assign(benchmark="own"))
    assert view.select(domain="all").selection.domain == "all"


def test_an_empty_list_says_so(view):
    view.select(text="no such text anywhere")
    assert view.frame.empty
    assert "No prompt fits" in view.panel.heading.value
    view.select(text="")
    assert len(view.frame) == 64


@pytest.mark.parametrize("show", ["Rendered", "Raw", "Differences", "Style"])
def test_each_way_of_showing_holds_every_answer(view, show):
    view.panel.shows.value = show
    html = view.panel.answers.value
    for style in STYLES:
        assert style in html
    assert "margins" in html
    assert ("<ins>" in html) == (show == "Differences")


def test_the_note_on_what_is_wrong_is_shown(view, responses):
    row = responses[responses["note"].notna()].iloc[0]
    view.select(prompt=(row["benchmark"], row["domain"], row["id"]))
    assert "What is wrong" in view.panel.heading.value


def test_tokens_in_the_explorer_and_a_scorer_that_raises(scores, responses, tiny):
    view = explore(scores, responses, scorer=tiny)
    view.panel.shows.value = "Tokens"
    assert "change after each token" in view.panel.answers.value

    def broken(prompts, texts):
        raise RuntimeError("<b>no</b> memory")

    view = explore(scores, responses, scorer=broken)
    view.panel.shows.value = "Tokens"
    assert "RuntimeError: &lt;b&gt;no&lt;/b&gt; memory" in view.panel.answers.value
    view.panel.shows.value = "Rendered"
    assert "no memory" not in view.panel.answers.value


def test_the_state_in_text_is_stable(view):
    assert view._repr_mimebundle_()["text/plain"] == repr(view)
    assert repr(view).startswith("explore: 64 of 64 prompts, Selection(models=('fond',)")


def test_one_model_only(scores, responses):
    view = explore(scores[scores["model"] == "fond"], responses)
    assert view.controls.other.disabled
    with pytest.raises(DataError, match="two models"):
        view.select(outcome="flip")


def test_no_styles_no_matrix(responses):
    plain = responses.drop(columns="style")
    view = explore(score(plain, baselines.longest), plain)
    assert "no styles" in view.matrices.titles[0].value
    assert view.matrices.grids[0] not in view.widget.children[2].children[0].children
    view.panel.shows.value = "Differences"
    assert "answer 0" in view.panel.answers.value
    with pytest.raises(DataError, match="styles"):
        view.select(cell=("concise", "plain"))
    both = explore(score(plain, [baselines.longest, baselines.shortest]), plain).select(models=("longest", "shortest"))
    side = both.widget.children[2].children[0].children
    assert [title in side and "comparisons" in title.value for title in both.matrices.titles] == [True, True]


@pytest.mark.parametrize("chosen", [1, 3])
def test_answers_of_any_number(chosen):
    rows = [("rb2", "Ties", "7", "chosen", k, "q", f"right {k}") for k in range(chosen)]
    rows += [("rb2", "Ties", "7", "rejected", k, "q", f"wrong {k}") for k in range(5)]
    responses = pd.DataFrame(rows, columns=["benchmark", "domain", "id", "label", "slot", "prompt", "response"])
    view = explore(score(responses, baselines.random), responses)
    assert view.frame["n_pairs"].tolist() == [5 * chosen]
    assert view.panel.answers.value.count("wrong ") == 5


def test_responses_deleted_after_scoring(scores, responses):
    with pytest.raises(DataError, match="have no text in responses"):
        explore(scores, responses[responses["id"] != "3"])


def test_responses_that_were_not_scored_are_left_out(scores, responses):
    view = explore(scores[scores["domain"] == "math"], responses)
    assert set(view.frame["domain"]) == {"math"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ("fund",)}, "did you mean 'fond'"),
        ({"models": ("fond", "fond")}, "two different"),
        ({"models": "fond"}, "write a tuple"),
        ({"domain": "maths"}, "did you mean 'math'"),
        ({"cell": ("concise", "fancy")}, "fancy"),
        ({"cell": ("concise",)}, "chosen style"),
        ({"outcome": "lost"}, "did you mean 'loss'"),
        ({"order": "wurst"}, "worst"),
        ({"margin": (1, 0)}, "lowest"),
        ({"margin": (float("nan"), 1)}, "lowest"),
        ({"margin": ("low", 1)}, "lowest"),
        ({"prompt": ("mini", "math", "999")}, "not in the scores"),
        ({"prompt": ("mini", "math")}, "benchmark, domain, id"),
        ({"text": None}, "give a string"),
        ({"modles": ("fond",)}, "did you mean 'models'"),
    ],
)
def test_a_selection_of_something_else_is_refused(view, changes, message):
    before = view.selection
    with pytest.raises(DataError, match=message):
        view.select(**changes)
    assert view.selection == before
    assert len(view.frame) == 64


def test_a_selection_is_a_selection(view):
    with pytest.raises(DataError, match=r"not a Selection"):
        view.selection = {"domain": "math"}


@pytest.mark.parametrize("value", [0.0, -595.0])
def test_margins_that_are_all_the_same_leave_the_slider_a_range(responses, value):
    flat = score(responses, [baselines.constant])
    view = explore(flat.assign(score=np.where(flat["label"] == "chosen", value, 0.0)), responses)
    slider = view.controls.margin
    assert slider.min < value < slider.max
    assert slider.step > 0
    assert len(view.frame) == 64


def test_rows_and_columns_of_the_matrices_say_which_is_which(view):
    assert view.matrices.grids[0].corner == detail.CORNER
    assert f"<td>{detail.CORNER}</td>" in view.panel.answers.value


def test_bad_tables_are_refused(scores, responses):
    with pytest.raises(DataError, match="no rows"):
        explore(scores.head(0), responses)
    with pytest.raises(DataError, match="repeat a key"):
        explore(pd.concat([scores, scores.head(1)]), responses)
    with pytest.raises(DataError, match="missing columns"):
        explore(scores.drop(columns="slot"), responses)
    with pytest.raises(TypeError, match="cannot be called"):
        explore(scores, responses, scorer="a model")
    with pytest.raises(DataError, match="chosen and a rejected"):
        explore(scores[scores["label"] == "chosen"], responses[responses["label"] == "chosen"])


def test_the_playground_scores_and_draws(tiny, responses):
    play = playground(
        tiny, prompt="Why?", answers=["Nothing else is known. Everything was said.", "No."], responses=responses
    )
    table = play.set(bold=2, emoji=1).frame
    np.testing.assert_allclose(table["score"], tiny(["Why?"] * 3, table["answer"].tolist()), atol=1e-5)
    assert play.steps == {"bold": 2, "emoji": 1}
    assert "**" in play.restyled
    line = play.line
    assert line["step"].tolist() == list(range(6))
    assert line["score"].iloc[1] == pytest.approx(table["score"].iloc[2], abs=1e-5)
    assert "<svg" in play.chart.value
    assert play.set(answers=["a b.", "c d.", "e f."], restyle=2).frame["name"].iloc[-1] == "answer 3 restyled"


def test_try_on_is_the_probe_of_the_same_change(responses):
    play = playground(baselines.longest, responses=responses).set(padding=1)
    table = play.try_on(10)
    assert table["change"].iloc[0] == len("\n\nI hope that this is of use to you.")
    assert table["n_prompts"].iloc[0] == 10
    assert "mean change" in play.trial.result.value


def test_a_scorer_that_raises_is_shown_and_the_page_lives_on():
    moods = iter([[1.0, 2.0, 1.0], [1.0] * 6, RuntimeError("<i>out</i> of memory"), [3.0, 4.0, 3.0], [3.0] * 6])

    def moody(prompts, texts):
        mood = next(moods)
        if isinstance(mood, Exception):
            raise mood
        return mood

    play = playground(moody)
    assert play.problem.value == ""
    play.prompt_box.value = "another"
    assert "RuntimeError: &lt;i&gt;out&lt;/i&gt; of memory" in play.problem.value
    play.prompt_box.value = "once more"
    assert play.problem.value == ""
    assert "4.00" in play.lines[1].value


def test_an_error_takes_every_old_number_away(responses):
    moods = iter(["good"] * 2 + ["good"] * 4 + ["bad", "good", "good", "bad"])

    def moody(prompts, texts):
        if next(moods, "good") == "bad":
            raise RuntimeError("out of memory")
        return [float(len(text)) for text in texts]

    play = playground(moody, responses=responses)
    play.set(bold=1)
    play.try_on(5)
    assert all((play.preview.value, play.chart.value, play.trial.result.value, play.lines[0].value))
    play.prompt_box.value = "another"
    assert "out of memory" in play.problem.value
    assert not any((play.preview.value, play.chart.value, play.trial.result.value))
    assert not any(line.value for line in play.lines)
    play.prompt_box.value = "once more"
    assert play.problem.value == ""
    assert all((play.preview.value, play.chart.value, play.lines[1].value))
    play.trial.prompts.value = 5
    play.trial.button.click()
    assert "out of memory" in play.trial.result.value
    assert play.lines[1].value, "what stands in the boxes was scored"


def test_too_few_prompts_for_an_interval_say_so(responses):
    play = playground(baselines.longest, responses=responses)
    play.set(bold=1)
    play.trial.prompts.value = 2
    play.trial.button.click()
    assert "(fewer than 5 prompts)" in play.trial.result.value


def test_long_texts_are_cut_as_chosen_and_the_scorer_stays_as_it_is(tmp_path):
    import torch

    torch.set_num_threads(1)
    model = classifier(toy.save_model(tmp_path, "qwen3"), dtype="float32", max_length=48)
    cutting = classifier(tmp_path, dtype="float32", max_length=48, truncate="left")
    answers = ["word after word " * 30, "No."]
    play = playground(model, prompt="Why?", answers=answers)
    assert 'choose "cut the prompt" (keeps the answer) under "Long texts"' in play.problem.value.replace("&quot;", '"')
    assert "truncate" not in play.problem.value
    play.long_texts.widget.value = "cut the prompt"
    assert play.problem.value == ""
    np.testing.assert_allclose(play.frame["score"][:2], cutting(["Why?"] * 2, answers), atol=1e-6)
    assert play.long_texts.scorer.backbone is model.backbone
    assert model.encode_options["truncate"] is None
    play.long_texts.widget.value = "refuse"
    assert "Long texts" in play.problem.value
    assert playground(cutting).long_texts.widget.value == "cut the prompt"
    assert playground(baselines.longest).long_texts.widget.layout.display == "none"


@pytest.mark.parametrize("change", [{"bold": 9}, {"bold": -1}, {"restyle": 7}, {"bald": 1}])
def test_a_change_that_is_not_there_is_refused_and_the_page_lives_on(change):
    asked = []

    def listening(prompts, responses):
        asked.extend(prompts)
        return baselines.longest(prompts, responses)

    play = playground(listening)
    with pytest.raises(ValueError, match=next(iter(change))):
        play.set(**change)
    play.prompt_box.value = "The page still listens."
    assert asked[-1] == "The page still listens."
    assert play.set(bold=1).steps == {"bold": 1}
    play.prompt_box.value = "And still."
    assert asked[-1] == "And still."


def test_a_playground_without_a_reward_draws_no_line():
    play = playground(baselines.longest)
    assert "<svg" in play.chart.value
    play.set(answers=["", ""])
    assert play.chart.value == ""
    endless = playground(lambda prompts, texts: [np.inf] * len(texts))
    assert endless.chart.value == ""


def test_trying_on_no_prompt_is_refused():
    with pytest.raises(ValueError, match="1 or more"):
        playground(baselines.longest).try_on(0)


def test_a_playground_with_empty_boxes(tiny):
    play = playground(tiny, answers=["", "Yes."])
    assert play.frame["score"].isna().tolist() == [True, False, True]
    assert play.problem.value == ""


@pytest.mark.parametrize(("arguments", "message"), [({"answers": "one"}, "two or more"), ({"answers": ["one"]}, "two")])
def test_a_playground_needs_two_answers(arguments, message):
    with pytest.raises(ValueError, match=message):
        playground(baselines.longest, **arguments)
    with pytest.raises(TypeError, match="cannot be called"):
        playground("longest")


def test_only_the_last_of_many_keystrokes_is_scored():
    async def type_fast():
        calls = []
        later = Debounced(lambda: calls.append(1), seconds=0.01)
        for _ in range(5):
            later()
        await asyncio.sleep(0.1)
        return calls

    assert asyncio.run(type_fast()) == [1]


@pytest.mark.parametrize("architecture", ["llama", "qwen3", "gemma2", "gpt_neox", "gpt2", "bert", "modernbert"])
def test_the_last_token_reward_is_the_score(tmp_path, architecture):
    import torch

    torch.set_num_threads(1)
    model = classifier(toy.save_model(tmp_path, architecture), dtype="float32")
    prompt = [{"role": "user", "content": "Was ist das?"}]
    answer = "Ein Café 😀. Two lines:\n- one\n- two"
    table = token_rewards(model, prompt, answer)
    assert table["reward"].iloc[-1] == pytest.approx(model([prompt], [answer])[0], abs=1e-5)
    assert "".join(table["text"]).startswith(answer)
    assert set(table["method"]) == {"occlusion" if "bert" in architecture else "token"}


def test_token_rewards_are_the_scores_of_the_texts_so_far(tiny):
    from rmlab.inference.forward import Batch
    from rmlab.inference.passes import alone

    table = token_rewards(tiny, "Why?", "Because it is.")
    prepared = tiny.prepare(["Why?"], ["Because it is."])
    ids, start = prepared.ids[0], int(prepared.response_start[0])
    for k, end in enumerate(range(start, len(ids))):
        row = alone(tiny.backbone, ids[: end + 1], np.array([end]))
        one = tiny.read_head(Batch(np.zeros(1, np.intp), row, [np.zeros(1, np.intp)]))
        assert table["reward"].iloc[k] == pytest.approx(one[0], abs=1e-5)


def test_occlusion_says_what_each_sentence_is_worth():
    def counts_rome(prompts, texts):
        return [float(text.count("Rome")) for text in texts]

    table = token_rewards(counts_rome, "Where?", "Rome. Not here. In Rome, in Rome.")
    assert table["change"].tolist() == [1, 0, 2]
    assert table["reward"].tolist() == [1, 1, 3]
    assert token_rewards(counts_rome, "Where?", "Rome.")["change"].isna().all()


@given(st.text(alphabet="aB. !?\n\"'-", min_size=1))
def test_sentences_put_together_are_the_text(text):
    pieces = sentences(text)
    assert "".join(pieces) == text
    assert all(piece.strip() for piece in pieces) or len(pieces) == 1, "a scorer is never asked about nothing"


def test_the_figure_draws_its_table(tiny):
    table = token_rewards(tiny, "Why?", "Because $x_1$ is.\nSo there.")
    ax = plot_token_rewards(table)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), table["reward"])
    assert len(ax.patches) == len(table)
    ax.figure.canvas.draw()
    assert "rmlab-tokens" in tokens_html(table)
    with pytest.raises(DataError, match="token_rewards"):
        plot_token_rewards(table.drop(columns="reward"))
    with pytest.raises(ValueError, match="non-empty"):
        token_rewards(tiny, "Why?", "")


def test_the_page_reads_files_and_its_address(tmp_path, scores, monkeypatch):
    write_scores(scores, tmp_path / "scores.csv")
    monkeypatch.setenv("QUERY_STRING", "token=abc&domain=math&models=fair")
    view = page(tmp_path)
    assert view.selection.domain == "math"
    assert "?models=fair&amp;domain=math" in view.link.value
    monkeypatch.setenv("QUERY_STRING", "domain=moths")
    assert "did you mean &#x27;math&#x27;" in page(tmp_path).problem.value
    table, texts = read(tmp_path / "scores.csv")
    assert len(table) == len(scores)
    assert set(texts["benchmark"]) == {"mini"}


def test_serving_says_what_is_wrong_before_it_starts(tmp_path, scores):
    import socket

    with pytest.raises(DataError, match="no score file"):
        serve(tmp_path, port=0)
    (tmp_path / "model.mini.pairs.csv").touch()
    with pytest.raises(DataError, match=r"holds comparisons and no scores; .*rmlab score"):
        serve(tmp_path, port=0)
    write_scores(scores, tmp_path / "scores.csv")
    with pytest.raises(DataError, match="empty token"):
        serve(tmp_path, port=0, token="")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(DataError, match="choose another port"):
            serve(tmp_path, port=taken.getsockname()[1])
