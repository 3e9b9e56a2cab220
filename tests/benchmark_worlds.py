"""Rows of every benchmark's files, and random results of RewardBench 1 and 2."""

import json
from itertools import product

import numpy as np
import pandas as pd

from rmlab import tables
from rmlab.benchmarks.reward_bench import SECTIONS

FIVE = ("Factuality", "Precise IF", "Math", "Safety", "Focus")


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def styles(word):
    """An answer in three styles."""
    return [word, f"It is {word}.", f"**{word}**"]


MESSAGES = [{"role": "user", "content": "Why?"}]
TEXTS = {"prompt": "Why?", "chosen": "a", "rejected": "b"}
NINE = {"id": "chat/7", "domain": "chat", "prompt": "Why?", "subset": "web"}
NINE |= {"chosen": styles("a"), "rejected": styles("b"), "error": "e", "note": "n"}
ONE = TEXTS | {"id": 395, "subset": "llmbar-natural"}
FOUR = TEXTS | {"id": "1", "subset": "Focus", "chosen": ["a"], "rejected": [*"bcd"]}
TRANSLATED = TEXTS | {"id": 1718, "source": "hep-go", "language": "de"}
JUDGED = {"pair_id": "p", "source": "mmlu-pro-law", "question": "Why?"}
JUDGED |= {"response_model": "m", "response_A": "a", "response_B": "b", "label": "A>B"}
BIASED = {"bias": "nested_instruction", "instruction": "Why?", "label": 2}
BIASED |= {"response1": "b", "response2": "a"}
BETTER, WORSE = {"llm_name": "x", "answer": "a"}, {"llm_name": "y", "answer": "b"}
PAIR = {"pair_uid": "u", "category_path": "Pairwise_set/Helpfulness/Chat/Talk"}
PAIR |= {"conversation_input": MESSAGES, "chosen": BETTER, "reject": WORSE}
LIST = {"bon_uid": "u", "category_path": "BoN_set/Harmlessness/S1"}
LIST |= {"conversation_input": MESSAGES, "bon_best": BETTER, "loser_list": [WORSE] * 2}
VOTE = {"question_id": "q", "winner": "model_b", "language": "Dutch", "prompt": "Why?"}
VOTE |= {"response_1": "b", "response_2": "a"}
SAMPLED = {"question_id": 3, "model_name": "m", "prompt": "Why?"}
SAMPLED |= {"scores": [False, True, False], "sampled_conflict_pairs": [[0, 1], [1, 2]]}
SAMPLED |= {"response_1": "b", "response_2": "a", "response_3": "b"}
PROGRAM = TEXTS | {"id": "x_1", "aspect": "Runtime_Efficiency", "subset": "x"}
PROGRAM |= {"language": "Go"}

A_B = (["a"], ["b"])
ROWS = [  # a benchmark, a row of its files, and what is read: ids and further columns
    ("rm-bench", NINE, ["7"], {"domain": "chat", "source": "web", "note": "n"}),
    ("reward-bench", ONE, ["395"], {"domain": "llmbar-natural"}),
    ("reward-bench-2", FOUR, ["1"], {"domain": "Focus"}),
    ("m-reward-bench", TRANSLATED, ["de/1718"], {"task": "task 1554"}),
    ("judgebench", JUDGED, ["p"], {"domain": "knowledge", "source": "mmlu-pro-law"}),
    ("evalbiasbench", {"x": [BIASED]}, ["0"], {"domain": "nested instruction"}),
    ("rmb", PAIR, ["u"], {"domain": "helpfulness_pairs", "scenario": "Chat/Talk"}),
    ("rmb", LIST, ["u"], {"domain": "harmlessness_best_of_n", "scenario": "S1"}),
    ("ppe-preference", VOTE, ["q"], {"domain": "other", "language": "Dutch"}),
    ("ppe-correctness", SAMPLED, ["3/m/0", "3/m/1"], {"domain": "gpqa"}),
    ("code-reward-bench", PROGRAM, ["x_1"], {"source": "x", "language": "Go"}),
]


def judge_rows(n=40, model="gpt-4o"):
    """Rows in JudgeBench's layout; every question stands in two of them."""
    sources = ("mmlu-pro-law", "livebench-reasoning", "livebench-math")
    sources += ("livecodebench", "mmlu-pro-physics")
    return [
        {
            "pair_id": f"{model[:3]}-{i}",
            "source": sources[i % 5],
            "question": f"Question {i // 2}?",
            "response_model": model,
            "response_A": "a" * (1 + i),
            "response_B": "b" * (1 + (7 * i) % n),
            "label": "A>B" if i % 3 else "B>A",
        }
        for i in range(n)
    ]


def rmb_rows(place, n=24):
    """Rows of RMB's two sets: pairs, three a prompt, and lists of two to four losers to
    the same prompts.
    """
    pairs, lists = [], []
    for i in range(n):
        prompt = [{"role": "user", "content": f"Prompt {i // 3}"}]
        answers = {"chosen": {"answer": "x" * (5 + i % 7)}}
        answers |= {"reject": {"answer": "x" * (3 + i % 11)}}
        row = PAIR | answers | {"conversation_input": prompt, "pair_uid": f"{i}"}
        pairs.append(row | {"category_path": f"Pairwise_set/{place}"})
        if i % 3 == 0:
            lengths = [4 + (i // 3 * j) % 7 for j in range(1, 3 + i % 4)]
            answers = {"loser_list": [{"answer": "y" * length} for length in lengths]}
            answers |= {"bon_best": {"answer": "x" * 9}, "bon_uid": f"{i}"}
            row = LIST | answers | {"conversation_input": prompt}
            lists.append(row | {"category_path": f"BoN_set/{place}"})
    return pairs, lists


def write_rmb(folder):
    for place in ("Helpfulness/Chat/Discussion", "Harmlessness/S1"):
        pairs, lists = rmb_rows(place)
        write(folder / "Pairwise_set" / f"{place}.json", pairs)
        write(folder / "BoN_set" / f"{place}.json", lists)
    return folder


def reward_bench_pairs(seed=0, models=("a", "b"), prior_sets=False, sizes=(5, 11)):
    """Every subset of RewardBench 1 with a few prompts; ties happen."""
    rng = np.random.default_rng(seed)
    names = [subset for section in SECTIONS.values() for subset in section]
    if prior_sets:
        names += ["anthropic_helpful", "anthropic_hhh", "shp", "summarize"]
    counts = {name: int(rng.integers(*sizes)) for name in names}
    rows = [
        (model, "reward-bench", name, f"{name}-{i}", 0, 0, float(rng.integers(-2, 4)))
        for model in models
        for name, n in counts.items()
        for i in range(n)
    ]
    columns = ["model", *tables.PROMPT, "chosen_slot", "rejected_slot", "margin"]
    return tables.check_pairs(pd.DataFrame(rows, columns=columns))


def reward_bench_2_scores(seed=0, models=("a", "b"), n=6, levels=4, right=1.0):
    """Best of four in five subsets (of 6, 7, 8 ... prompts) and pairs of Ties prompts;
    equal scores happen.
    """
    prompts = [
        (domain, str(i), 1, right)
        for place, domain in enumerate(FIVE)
        for i in range(n + place)
    ]
    for i, (kind, n_right) in product(range(n), (("ref", 1), ("tied", 4))):
        prompts.append(("Ties", f"{kind}:{i}", n_right, 1.5))
    rows = []
    for model, (domain, item, n_right, score) in product(models, prompts):
        key = (model, "reward-bench-2", domain, item)
        rows += [(*key, "chosen", slot, score) for slot in range(n_right)]
        rows += [(*key, "rejected", slot, 0.0) for slot in range(3)]
    frame = pd.DataFrame(rows, columns=["model", *tables.KEY, "score"])
    rng = np.random.default_rng(seed)
    return frame.assign(score=frame["score"] + rng.integers(0, levels, len(frame)))
