"""What a real language model says of a benchmark's answers: SmolLM2-135M-Instruct, as
likelihoods and as a judge.

    python performance/smollm2.py mini
    python performance/smollm2.py rm-bench --path FOLDER
    python performance/smollm2.py math --path math_concise_only.json
    python performance/smollm2.py letters --path FOLDER --prompts 8
    python performance/smollm2.py judge
    python performance/smollm2.py criteria
    python performance/smollm2.py doctor
    python performance/smollm2.py tokens
    python performance/smollm2.py check --path FOLDER --prompts 20

One thread, float32. Run it again and it resumes (`--store`). Writes
data/results/smollm2_*.csv.gz, without texts:

- mini, rm-bench, math: `sum`, the log-probability of the answer
  (`rmlab.implicit_reward(folder, mode="sum")`), and `tokens`, its length; their
  quotient is `mode="mean"`. math: the concise answers, one right and one wrong a
  prompt.
- letters: the model reads two answers and says A or B
  (`rmlab.pairwise(form="letters")`). `right_first`, `right_last`: log-odds that the
  right answer is the better one where it is A, and where it is B. `--prompts` of each
  subset, drawn with a fixed seed, with all nine comparisons.
- judge: the plain answers of mini in chat, by `rmlab.judge(folder, mode="logprob")`,
  with its verdict and the vote in each order.
- criteria: the same judge with three system messages (`CRITERIA`), on answers to six
  questions in three styles, with all nine comparisons.
- doctor: what `rmlab.doctor` finds, on the twelve answers that the lesson scores.
- tokens: `rmlab.widgets.token_rewards` of a right and a wrong answer of mini, as the
  lesson shows them.
- check: nothing is written; `--prompts` random prompts of rm-bench are scored again,
  the largest difference is printed.
"""

import argparse
import gzip
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import rmlab
from rmlab.scorers.checkpoints.gguf import smollm2
from rmlab.scoring.run import RunOptions, score_texts
from rmlab.scoring.texts import comparisons
from rmlab.store import Store

RESULTS = Path(__file__).parents[1] / "data" / "results"
KEY = ["benchmark", "domain", "id", "label", "slot", "subset", "style"]
COMPARED = [
    "benchmark",
    "domain",
    "id",
    "chosen_slot",
    "rejected_slot",
    "subset",
    "chosen_style",
    "rejected_style",
]
SEED = 0
# The words of the form, then the question. The form removes the BOS token, which
# this model's turns begin with.
TEMPLATE = (
    "<|im_start|>user\n{{ messages[0]['content'] }}\n"
    "Which response is better, A or B? Answer with one letter.<|im_end|>\n"
    "<|im_start|>assistant{{ '\n' }}"
)


def likelihoods(responses, store):
    """Rows of `responses` without their texts, with the sum of the log-probabilities of
    the answer, and its tokens.
    """
    scorer = rmlab.implicit_reward(smollm2(), mode="sum", device="cpu", dtype="float32")
    scores = rmlab.score(responses, scorer, store=store)
    prepared = scorer.prepare(
        responses["prompt"].tolist(), responses["response"].tolist()
    )
    tokens = np.array([len(ids) for ids in prepared.ids]) - prepared.response_start
    assert scores["id"].tolist() == responses["id"].tolist(), (
        "score keeps the order of the rows"
    )
    return responses[KEY].assign(sum=scores["score"].round(4).to_numpy(), tokens=tokens)


def letters(responses, store):
    """Comparisons of `responses`, with the log-odds of the right answer in both
    orders.
    """
    scorer = rmlab.pairwise(judge(store), form="letters", device="cpu", dtype="float32")
    frame, texts = comparisons(responses, both_orders=True)
    logits, _, _ = score_texts(scorer, texts, RunOptions(store=Store(store)))
    first, last = logits[texts.numbers, 0].round(4)
    return frame[COMPARED].assign(right_first=first, right_last=-last)


def judge(store):
    """A folder of SmolLM2 with a chat template that ends where the letter is due; the
    weights are linked.
    """
    source, folder = smollm2(), store / "judge"
    folder.mkdir(parents=True, exist_ok=True)
    for file in source.iterdir():
        (folder / file.name).unlink(missing_ok=True)
        os.symlink(file, folder / file.name)
    settings = json.loads(
        (source / "tokenizer_config.json").read_text(encoding="utf-8")
    ) | {"bos_token": None}
    for name, text in {
        "tokenizer_config.json": json.dumps(settings),
        "chat_template.jinja": TEMPLATE,
    }.items():
        (folder / name).unlink()
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def verdicts(store):
    """The plain answers of mini in chat by the model as a judge, asked for the letter
    in both orders.
    """
    responses = (
        rmlab.load("mini")
        .query("style == 'plain' and domain == 'chat'")
        .reset_index(drop=True)
    )
    judging = rmlab.judge(
        smollm2(), mode="logprob", dtype="float32", name="SmolLM2-135M"
    )
    pairs = rmlab.prefer(responses, judging, store=store, allow_missing=True)
    columns = [
        "model",
        *COMPARED,
        "outcome",
        "verdict",
        "vote_first",
        "vote_second",
        "margin",
    ]
    return pairs[columns].round({"margin": 4})


CAPITALS = {
    "France": ("Paris", "Lyon"),
    "Japan": ("Tokyo", "Osaka"),
    "Egypt": ("Cairo", "Luxor"),
    "Canada": ("Ottawa", "Toronto"),
    "Kenya": ("Nairobi", "Mombasa"),
    "Peru": ("Lima", "Cusco"),
}
STYLES = {
    "concise": "{city}.",
    "plain": "The capital of {country} is the city of {city}.",
    "markdown": (
        "## Capital of {country}\n\n- **City:** {city}\n- **Country:** {country}"
    ),
}
CRITERIA = {
    "no criterion": "",
    "ignore style": (
        "Judge only whether the answer is correct. "
        "Ignore its length and its formatting."
    ),
    "prefer layout": (
        "Prefer the longer answer, with a heading, bold text and a list."
    ),
}


def capitals():
    """The right city and another one in three styles, for six countries."""
    rows = []
    for country, cities in CAPITALS.items():
        for label, city in zip(("chosen", "rejected"), cities, strict=True):
            for slot, (style, text) in enumerate(STYLES.items()):
                rows.append(
                    {
                        "benchmark": "rm-bench",
                        "domain": "chat",
                        "id": country,
                        "label": label,
                        "slot": slot,
                        "style": style,
                        "prompt": f"What is the capital of {country}?",
                        "response": text.format(city=city, country=country),
                    }
                )
    return pd.DataFrame(rows)


def criteria(store):
    """The verdicts on all comparisons by each criterion, which names the model."""
    by_criterion = []
    for name, system in CRITERIA.items():
        judging = rmlab.judge(
            smollm2(), mode="logprob", dtype="float32", system=system, name=name
        )
        by_criterion.append(rmlab.prefer(capitals(), judging, store=store))
    columns = ["model", *COMPARED, "outcome", "verdict", "vote_first", "vote_second"]
    pairs = pd.concat(by_criterion)
    return pairs[[*columns, "margin"]].round({"margin": 4})


def sample(responses, prompts):
    """All answers to `prompts` prompts of each subset, the same at every run."""
    there = responses[["subset", "id"]].drop_duplicates()
    return responses.merge(
        there.groupby("subset").sample(prompts, random_state=SEED), on=["subset", "id"]
    )


def math_concise(path):
    """Responses of the file that holds one right and one wrong answer to each of
    RM-Bench's mathematics prompts.
    """
    rows = json.loads(path.read_text(encoding="utf-8"))
    key = {
        "benchmark": "rm-bench",
        "domain": "math",
        "subset": "math",
        "style": "concise",
        "slot": 0,
    }
    answers = [
        key
        | {
            "id": str(row["id"]),
            "label": label,
            "prompt": row["prompt"],
            "response": row[label][0],
        }
        for row in rows
        for label in ("chosen", "rejected")
    ]
    return rmlab.tables.check_responses(pd.DataFrame(answers))


def doctor():
    """What the doctor finds on SmolLM2 and twelve answers of mini: name of the check,
    status, finding, remedy.
    """
    responses = rmlab.load("mini")
    some = responses[(responses["domain"] == "chat") & responses["id"].isin(["0", "1"])]
    model = rmlab.implicit_reward(
        smollm2(), mode="mean", device="cpu", dtype="float32", name="SmolLM2-135M mean"
    )
    return rmlab.doctor(model, some)


def tokens():
    """Rewards after every token, as a sum, of the first prompt's two concise answers:
    as `token_rewards`, and label.
    """
    model = rmlab.implicit_reward(smollm2(), mode="sum", device="cpu", dtype="float32")
    mini = rmlab.load("mini")
    rows = mini[
        (mini["domain"] == "chat") & (mini["id"] == "0") & (mini["style"] == "concise")
    ]
    found = [
        rmlab.widgets.token_rewards(model, row.prompt, row.response).assign(
            label=row.label
        )
        for row in rows.itertuples()
    ]
    return pd.concat(found, ignore_index=True).round(4)


def write(what, found):
    """Keep a table in data/results, the same bytes at every run."""
    target = RESULTS / f"smollm2_{what.replace('-', '_')}.csv.gz"
    with gzip.GzipFile(target, "wb", mtime=0) as file:
        file.write(found.to_csv(index=False).encode())
    print(f"{len(found)} rows in {target.name}, {target.stat().st_size / 1000:.0f} kB")


def check(responses, prompts):
    """All answers to some random prompts of the shipped RM-Bench results again: the
    largest differences.
    """
    shipped = rmlab.papers.results("smollm2-rm-bench")
    key = ["domain", "id", "label", "slot"]
    there = shipped.pivot(index=key, columns="model", values="score").reset_index()
    some = there.merge(
        there[["domain", "id"]].drop_duplicates().sample(prompts, random_state=SEED)
    )
    asked = some.merge(responses[[*key, "prompt", "response"]], on=key)
    model = rmlab.implicit_reward(smollm2(), mode="sum", device="cpu", dtype="float32")
    again = model(asked["prompt"].tolist(), asked["response"].tolist())
    total, mean = asked["SmolLM2-135M sum"], asked["SmolLM2-135M mean"]
    apart = np.abs(again - total)
    print(
        f"{len(asked)} answers to {prompts} prompts: means at most "
        f"{(apart * mean / total).max():.1e} apart, sums "
        f"{apart.max():.1e}: {(apart / total.abs()).max():.1e} of themselves, "
        f"{apart.max() / total.std():.1e} sd"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "what",
        choices=[
            "mini",
            "rm-bench",
            "math",
            "letters",
            "judge",
            "criteria",
            "doctor",
            "tokens",
            "check",
        ],
    )
    parser.add_argument("--path", type=Path)
    parser.add_argument("--store", type=Path, default=Path("artefacts/smollm2"))
    parser.add_argument(
        "--prompts",
        type=int,
        help="of each subset, drawn with a fixed seed: letters, check, math",
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    match given.what:
        case "mini" | "rm-bench":
            write(
                given.what,
                likelihoods(rmlab.load(given.what, path=given.path), given.store),
            )
        case "math":
            texts = math_concise(given.path)
            texts = texts if given.prompts is None else sample(texts, given.prompts)
            write(given.what, likelihoods(texts, given.store))
        case "letters":
            some = sample(rmlab.load("rm-bench", path=given.path), given.prompts or 8)
            write(given.what, letters(some, given.store))
        case "judge":
            write(given.what, verdicts(given.store))
        case "criteria":
            write(given.what, criteria(given.store))
        case "doctor":
            write(given.what, doctor())
        case "tokens":
            write(given.what, tokens())
        case "check":
            check(rmlab.load("rm-bench", path=given.path), given.prompts or 20)
