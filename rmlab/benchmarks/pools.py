"""Pools of candidates: tables of any number of right and wrong answers to a prompt."""

import pandas as pd

from rmlab import records, tables
from rmlab.benchmarks.own_files import TEXTS, hash_texts, read_table
from rmlab.benchmarks.own_layouts import ANSWERS
from rmlab.benchmarks.ppe import PPE_CORRECTNESS, fetch_candidates
from rmlab.benchmarks.roles import match_roles, spell_names
from rmlab.benchmarks.sources import IN_MEMORY, read_source
from rmlab.estimation.best_of import N_CANDIDATES
from rmlab.tables import PROMPT, DataError


def load_pool(
    source: object,
    *,
    prompt: str | None = None,
    response: str | None = None,
    correct: str | None = None,
    name: str | None = None,
    model: str | None = None,
    allow_missing: bool = False,
) -> pd.DataFrame:
    """Load the candidates of many prompts, for best of n.

    Parameters
    ----------
    source : DataFrame, list of dicts, str or Path
        "ppe-correctness", whose 32 candidates a question come from the hub; or one row
        per candidate, as `load_preferences` takes it: the columns below, and
        where they are there `id`, `domain`, `subset`, `benchmark`, and with scores
        `model` and `score`. A prompt may have any number of right and wrong candidates,
        also none of one kind.
    prompt : str, optional
        The column of the prompt: its text or messages, or its name where there are no
        texts (default: `prompt`, `question` or `problem`, else `id`). Where it is
        named, a column `id` is not read.
    response : str, optional
        The column of the candidates' texts (default: `response`, `completion` or
        `answer`); it may be missing where there are scores.
    correct : str, optional
        The column that says whether a candidate is right: true or false, 1 or 0
        (default: `correct` or `label`).
    name : str, optional
        Name of the benchmark and of its domain, where the data do not say them
        (default: "pool", or the file's name).
    model : str, optional
        Name of the model of scores, where the data do not say it.
    allow_missing : bool
        Whether missing scores pass. They are counted as missing later.

    Returns
    -------
    DataFrame
        Scores, where the data have a column `score`, else responses to score. Right
        candidates are `chosen`, wrong ones `rejected`; `n_candidates` counts those of
        the prompt. Other columns stay, such as `answer`, `n_steps` and `characters`,
        which `best_of_curve` compares with; of scored texts only the length stays,
        as `characters`. Equal candidates of several models have one slot, whatever the
        order of the rows; without texts a column `candidate` tells them apart.

    Raises
    ------
    DataError
        For a column that is not there, a candidate without prompt, correctness or
        score, and candidates of several models that cannot be told apart.

    Examples
    --------
    >>> frame = pd.DataFrame({"question": ["2 + 2?"] * 3, "text": ["4", "four", "5"]})
    >>> frame["right"] = [True, True, False]
    >>> pool = load_pool(frame, response="text", correct="right")
    >>> pool[["id", "label", "slot", "response", "n_candidates"]]
      id     label  slot response  n_candidates
    0  0    chosen     0        4             3
    1  0    chosen     1     four             3
    2  0  rejected     0        5             3
    """
    pool = read_pool(source, prompt, response, correct, name, model)
    if "score" not in pool:
        return tables.check_responses(pool)
    pool = pool.drop(columns=TEXTS)
    return tables.check_scores(pool, allow_missing=allow_missing)


def read_pool(
    source: object,
    prompt: str | None = None,
    response: str | None = None,
    correct: str | None = None,
    name: str | None = None,
    model: str | None = None,
) -> pd.DataFrame:
    """What `load_pool` returns, not checked yet; scores have hashes of their texts."""
    if isinstance(source, str) and source == PPE_CORRECTNESS.name:
        source = fetch_candidates()
    data = read_source(source)
    spelled = spell_names(data.columns)
    is_scored = "score" in spelled
    mapping = {"label": correct or spelled.get("correct"), "response": response}
    mapping |= {"prompt": prompt}
    mapping = {role: column for role, column in mapping.items() if column is not None}
    if prompt is not None:
        mapping["id"] = None
    if is_scored and response is None:
        # "answer" is the answer extracted from it.
        mapping["response"] = spelled.get("response")
    if not is_scored:
        mapping["model"] = None  # It wrote the candidate.
    table = match_roles(data, mapping, is_scored=is_scored)
    if not table.has_any("response", "id"):
        table.roles["id"] = table.roles["prompt"]
        table.roles["prompt"] = []
    table.require("label", "score" if is_scored else "response")
    if is_scored and model is None and not table.has("model"):
        problem = f"{data.place}: scores without a column 'model'"
        raise DataError(problem, "name it: model='my-rm', or add the column")

    if name is None:
        is_file = data.place != IN_MEMORY
        name = records.file_stem(data.place) if is_file else "pool"
    pool = read_table(table, ANSWERS, name, compares=False)
    pool = pool.drop(columns="family", errors="ignore")
    if model is not None:
        pool["model"] = model
    if not is_scored:
        pool = pool.drop(columns=["model", "score"])
    # Cells of CSV are texts.
    for column in pool.columns.intersection(["characters", "n_steps"]):
        pool[column] = pd.to_numeric(pool[column], errors="coerce")
    key = pool.columns.intersection(["model", *PROMPT]).tolist()
    pool[N_CANDIDATES] = pool.groupby(key, sort=False)["slot"].transform("size")
    if not is_scored:
        return pool
    if table.has("response"):
        pool["characters"] = pool["response"].str.len()
    return hash_texts(pool)
