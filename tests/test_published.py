"""Published tables: sources beside every row, units, and the contradictions an audit must find."""

import numpy as np
import pytest

from rmlab.benchmarks import benchmarks_by_name
from rmlab.papers import audit_leaderboard, published

ALL = [(b.name, table, percent) for b in benchmarks_by_name().values() for table, (_, percent) in b.published.items()]
ALL.append(("seven-benchmarks", "skywork-v2", ["reward_bench", "rm_bench", "overall"]))


@pytest.mark.parametrize(("benchmark", "table", "percent"), ALL)
def test_every_row_names_source_date_and_link_and_shares_are_shares(benchmark, table, percent):
    frame = published(benchmark, table)
    assert len(frame)
    assert (frame[["source", "date", "link"]].astype(str) != "").all(axis=None)
    assert frame["link"].str.startswith("https://").all()
    shares = [column for column in percent if column in frame and not column.startswith("delta")]
    assert not percent or {*percent} & {*frame.columns}
    assert not (frame[shares] > 1).any(axis=None)


def test_missing_is_not_zero_and_the_matrix_is_of_183_prompts():
    board = published("rm-bench")
    assert board.columns[0] == "model"
    assert board["chat"].isna().any()
    matrix = published("rm-bench", "matrix").set_index("chosen_style")[["concise", "plain", "markdown"]].to_numpy()
    np.testing.assert_allclose(matrix * 183, np.round(matrix * 183), atol=0.01)


def test_the_audit_finds_the_known_contradictions_and_none_where_there_is_none():
    board = published("rm-bench")
    audit = audit_leaderboard(board)
    means = audit[audit["check"] == "domain mean is not the level mean"].set_index("model")["difference"]
    assert means["REWARDANYTHING-8B"] == pytest.approx(0.831 - 0.8637, abs=1e-3)
    assert {"Qwen3-8B", "GRM-Llama3.2-3B-rewardmodel-ft", "Skywork-Reward-Llama-3.1-8B-v0.2"} <= set(means.index)
    source = audit[audit["check"] == "contradicts its source"]
    assert source.groupby("model").size().to_dict() == {"DeepSeek R1": 3, "RM-R1-Qwen-Instruct-32B": 2}
    assert source[source["model"] == "RM-R1-Qwen-Instruct-32B"].set_index("quantity")["expected"].to_dict() == {
        "math": 0.802,
        "code": 0.668,
    }
    domains, levels = (
        {"chat": 0.6, "math": 0.7, "code": 0.8, "safety": 0.9},
        {"easy": 0.85, "normal": 0.75, "hard": 0.65},
    )
    consistent = board.dropna(subset=[*domains]).head(3).assign(model=[*"abc"], overall=0.75, **domains, **levels)
    assert audit_leaderboard(consistent).empty
