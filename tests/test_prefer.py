"""From a pairwise model to a pairs table on disk and a report: Python, command line,
store, shards.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from fakes import BothOrders, OneOrder, responses, truth
from pairwise_models import save

import rmlab
from rmlab.io import read_pairs
from rmlab.scorers.pairwise import pairwise
from rmlab.scoring import prefer, score
from rmlab.tables import DataError


@pytest.fixture(scope="module")
def pairrm(tmp_path_factory):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return save("pairrm", tmp_path_factory.mktemp("models") / "tiny-pairrm")


def test_a_real_model_and_its_rerun_from_the_command_line(main, pairrm, tmp_path):
    texts = {
        "prompt": "What is {}?",
        "chosen": "It is {}.",
        "rejected": "No idea of {}, sorry.",
    }
    frame = pd.DataFrame(
        {column: [text.format(i) for i in "123"] for column, text in texts.items()}
    )
    frame.to_json(tmp_path / "own.jsonl", orient="records", lines=True)
    tables = []
    for file in (tmp_path / "pairs.csv", tmp_path / "again.csv"):
        assert (
            main(
                "prefer",
                tmp_path / "own.jsonl",
                pairrm,
                "-q",
                "--store",
                tmp_path / "store",
                "-o",
                file,
            )[0]
            == 0
        )
        tables.append(read_pairs(file))
    for table in (tables[1], read_pairs(tmp_path / "store")):
        pd.testing.assert_frame_equal(table, tables[0])
    first, again = (table.attrs["provenance"]["tiny-pairrm"] for table in tables)
    assert first["scored"] == first["texts"] == again["texts"]
    assert again["scored"] == 0
    expected = pairwise(pairrm).prefer(*(frame[column].tolist() for column in texts))
    np.testing.assert_allclose(
        np.sort(tables[0]["margin"]), np.sort(expected), atol=1e-5
    )


@pytest.mark.parametrize(("kind", "n_texts"), [(BothOrders, 108), (OneOrder, 54)])
def test_both_orders_are_scored_by_themselves_and_averaged(tmp_path, kind, n_texts):
    frame = responses(6).sample(frac=1, random_state=0)
    judge = kind()
    pairs = prefer(frame, judge, store=tmp_path)
    columns = [
        "id",
        "chosen_slot",
        "rejected_slot",
        "chosen_style",
        "rejected_style",
        "level",
    ]
    pd.testing.assert_frame_equal(
        pairs[columns], rmlab.pairs(score(frame, "longest"))[columns]
    )
    for row in pairs.itertuples():
        answers = (
            f"chosen {row.chosen_slot} to {row.id}",
            f"rejected {row.rejected_slot} to {row.id}",
        )
        forth, back = (
            truth(f"prompt {row.id}", *texts) for texts in (answers, answers[::-1])
        )
        assert row.margin == ((forth - back) / 2 if kind is BothOrders else forth)
        assert row.outcome == ("win" if row.margin > 0 else "loss")
    about = pairs.attrs["provenance"]["fake"]
    assert (len(pairs), about["texts"], about["scored"]) == (54, n_texts, n_texts)
    assert len(judge.forwarded) == len(set(judge.forwarded)) == n_texts
    again = kind()
    pd.testing.assert_frame_equal(prefer(frame, again, store=tmp_path), pairs)
    assert again.forwarded == []


def test_an_order_that_two_comparisons_share_is_scored_once():
    """Where right and wrong answers are the same texts, one comparison's order is the
    other's exchanged.
    """
    frame = responses(2).assign(
        response=lambda table: "answer " + table["slot"].astype(str)
    )
    judge = BothOrders()
    pairs = prefer(frame, judge)
    assert len(judge.forwarded) == 2 * 9
    margin = pairs.set_index(["id", "chosen_slot", "rejected_slot"])["margin"]
    for (prompt, chosen, rejected), value in margin.items():
        assert value == -margin[prompt, rejected, chosen]
    assert (pairs["outcome"] == "tie").sum() == 2 * 3


@pytest.mark.parametrize("blind", ["chosen", "rejected"])
def test_an_order_without_a_number_makes_the_margin_missing(tmp_path, blind):
    """The fake does not answer where this one is written last."""
    frame = responses(4)
    bad = frame.query(f"id == '2' and label == '{blind}' and slot == 1")[
        "response"
    ].item()
    named = f"id 2, .*{blind}_slot 1.* is nan"
    with pytest.raises(DataError, match=named):
        prefer(frame, BothOrders(nan=[bad]))
    pairs = prefer(frame, BothOrders(nan=[bad]), store=tmp_path, allow_missing=True)
    missing = (pairs["id"] == "2") & (pairs[f"{blind}_slot"] == 1)
    assert (pairs["margin"].isna() == missing).all()
    assert (pairs["outcome"].isna() == missing).all()
    assert pairs.attrs["provenance"]["fake"]["missing"] == 3
    mended = BothOrders()
    whole = prefer(frame, mended, store=tmp_path)
    assert len(mended.forwarded) == 3, (
        "the other orders of these comparisons were stored"
    )
    pd.testing.assert_frame_equal(whole, prefer(frame, BothOrders()))
