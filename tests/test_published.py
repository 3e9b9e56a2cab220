"""Published tables: sources beside every row, units, and the contradictions an audit must find."""

import numpy as np
import pytest

from rmlab.benchmarks import benchmarks_by_name
from rmlab.papers import audit_leaderboard, published

ALL = [(b.name, table, percent) for b in benchmarks_by_name().values() for table, (_, percent) in b.published.items()]
ALL.append(("seven-benchmarks", "skywork-v2", ["reward_bench", "rm_bench", "overall"]))


@pytest.mark.parametrize(("benchmark", "table", "percent"), ALL)
def test_every_row_names_source_date_and_link(benchmark, table, percent):
    frame = published(benchmark, table)
    assert len(frame)
    assert (frame[["source", "date", "link"]].astype(str) != "").all(axis=None)
    assert frame["link"].str.startswith("https://").all()
    present = [c for c in percent if c in frame]
    assert not percent or present
    values = frame[[c for c in present if not c.startswith("delta")]].to_numpy(float)
    assert np.nanmax(np.append(values, 0)) <= 1.0


def test_rows_and_first_columns():
    board = published("rm-bench")
    assert len(board) == 51
    assert board.columns[0] == "model"
    assert len(published("reward-bench-2")) == 46
    assert len(published("reward-bench")) == 82
    assert board["chat"].isna().any(), "an empty cell is missing, not zero"
    matrix = published("rm-bench", "matrix").set_index("chosen_style")[["concise", "plain", "markdown"]].to_numpy()
    np.testing.assert_allclose(matrix * 183, np.round(matrix * 183), atol=0.01)


def test_the_audit_finds_the_known_contradictions():
    found = audit_leaderboard(published("rm-bench"))
    both = found[found["check"] == "domain mean is not the level mean"].set_index("model")["difference"]
    assert both["REWARDANYTHING-8B"] == pytest.approx(0.831 - 0.8637, abs=1e-3)
    assert {"Qwen3-8B", "GRM-Llama3.2-3B-rewardmodel-ft", "Skywork-Reward-Llama-3.1-8B-v0.2"} <= set(both.index)
    source = found[found["check"] == "contradicts its source"]
    assert source.groupby("model").size().to_dict() == {"DeepSeek R1": 3, "RM-R1-Qwen-Instruct-32B": 2}


def test_a_consistent_table_has_no_findings():
    board = published("rm-bench").dropna(subset=["chat", "math", "code", "safety"]).head(3)
    clean = board.assign(
        model=["a", "b", "c"], chat=0.6, math=0.7, code=0.8, safety=0.9, easy=0.85, normal=0.75, hard=0.65, overall=0.75
    )
    assert audit_leaderboard(clean).empty
