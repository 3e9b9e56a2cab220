"""What the shell shows of demo, help, doctor and explorer: whole lines, in words that fit the mistake."""

import rmlab


def test_the_demo_fits_a_terminal(main, tmp_path):
    code, out, _ = main("demo", "--out", str(tmp_path))
    assert code == 0
    named = [line for line in out.splitlines() if str(tmp_path) not in line]
    assert max(map(len, named)) <= 80
    rows = {line.split()[0]: line.split() for line in named if line.strip()}
    assert rows["model"][-4:] == ["overall", "low", "high", "ties"]
    assert rows["longest"][-4:] == ["0.50", "0.45", "0.55", "2"]


def test_no_summary_of_a_command_is_cut(main, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = main("--help")
    assert code == 0
    assert "..." not in out.split("Commands:")[1]


def test_the_doctor_of_a_baseline_suggests_no_download(main):
    code, _, err = main("doctor", "longest")
    assert code == 1
    assert "'longest'" in err
    assert "download" not in err


def test_the_explorer_is_one_file(main, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    rmlab.write_scores(rmlab.score(rmlab.load("mini"), "longest"), tmp_path / "scores.csv")
    code, out, _ = main("explore", tmp_path / "scores.csv", "-o", tmp_path / "e.html")
    assert (code, out) == (0, "")
    assert opened == [(tmp_path / "e.html").as_uri()]
    assert "With the texts of all 64 prompts" in (tmp_path / "e.html").read_text()
    assert main("explore", tmp_path / "scores.csv", "-o", tmp_path / "e.html", "--no-open")[0] == 0
    assert len(opened) == 1
