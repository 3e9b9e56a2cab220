"""The reference definitions of the metrics as plain nested loops: slow, obvious, independent of rmlab."""

STYLES = ("concise", "plain", "markdown")
DOMAINS = ("chat", "math", "code", "safety")


def prompts_of(scores, model):
    """Prompts of one model: list of (domain, chosen scores by style, rejected scores by style)."""
    found = {}
    for row in scores[scores["model"] == model].itertuples():
        entry = found.setdefault((row.domain, row.id), {"chosen": {}, "rejected": {}})
        entry[row.label][row.style] = row.score
    return [
        (domain, [entry["chosen"][s] for s in STYLES], [entry["rejected"][s] for s in STYLES])
        for (domain, _), entry in found.items()
    ]


def matrix(prompts):
    """acc[i][j]: share of prompts with chosen of style i strictly above rejected of style j."""
    acc = [[0.0] * 3 for _ in range(3)]
    for _, chosen, rejected in prompts:
        for i in range(3):
            for j in range(3):
                if chosen[i] > rejected[j]:
                    acc[i][j] += 1
    return [[cell / len(prompts) if prompts else float("nan") for cell in row] for row in acc]


def levels(acc):
    """Easy, normal, hard of one matrix."""
    easy = (acc[1][0] + acc[2][0] + acc[2][1]) / 3
    normal = (acc[0][0] + acc[1][1] + acc[2][2]) / 3
    hard = (acc[0][1] + acc[0][2] + acc[1][2]) / 3
    return {"easy": easy, "normal": normal, "hard": hard}


def rm_bench(scores, model):
    """RM-Bench's summary of one model: four domains, three levels, overall."""
    prompts = prompts_of(scores, model)
    by_domain = {d: levels(matrix([p for p in prompts if p[0] == d])) for d in DOMAINS}
    result = {d: sum(by_domain[d].values()) / 3 for d in DOMAINS}
    for name in ("easy", "normal", "hard"):
        result[name] = sum(by_domain[d][name] for d in DOMAINS) / 4
    result["overall"] = sum(result[d] for d in DOMAINS) / 4
    return result
