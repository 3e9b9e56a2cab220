"""The main job end to end: table, figures, numbers beside them."""

import pandas as pd

from rmlab.demo import demo


def test_demo_writes_figures_with_their_numbers(tmp_path):
    table, files = demo(tmp_path)
    assert {file.suffix for file in files} == {".png", ".csv"}
    assert all(file.stat().st_size > 200 for file in files)
    cells = pd.read_csv(tmp_path / "demo_matrices.csv")
    assert len(cells) == 6 * 9
    assert cells[["n_prompts", "n_ties", "low", "high"]].notna().all(axis=None)
    scores = table.set_index("model")
    assert scores.loc["toy: substance", "hard"] > 0.8
    assert scores.loc["toy: style-biased", "hard"] < 0.4 < scores.loc["toy: style-biased", "easy"]
    assert abs(scores.loc["longest", "normal"] - 0.5) < 0.1, "length must not give the bundled answers away"
