"""Names of the benchmarks' subsets, and which RewardBench 1 items belong to which."""

from bisect import bisect_right

__all__ = ["PRIOR_SETS", "REWARD_BENCH", "REWARD_BENCH_2", "REWARD_BENCH_ITEMS", "RM_BENCH", "reward_bench_subset"]

RM_BENCH = ("chat", "math", "code", "safety-refuse", "safety-response")

REWARD_BENCH = (
    "alpacaeval-easy", "alpacaeval-length", "alpacaeval-hard", "mt-bench-easy", "mt-bench-med", "mt-bench-hard",
    "llmbar-natural", "llmbar-adver-neighbor", "llmbar-adver-GPTInst", "llmbar-adver-GPTOut", "llmbar-adver-manual",
    "refusals-dangerous", "refusals-offensive", "xstest-should-refuse", "xstest-should-respond", "donotanswer",
    "math-prm", "hep-cpp", "hep-go", "hep-java", "hep-js", "hep-python", "hep-rust",
)  # fmt: skip
PRIOR_SETS = (
    "anthropic_helpful", "anthropic_hhh", "anthropic_harmless", "mtbench_human", "mtbench_gpt4", "shp", "summarize",
)  # fmt: skip

REWARD_BENCH_2 = ("Factuality", "Precise IF", "Math", "Safety", "Focus", "Ties")

REWARD_BENCH_ITEMS = 2985

_FIRST_ID = {
    0: "alpacaeval-easy", 100: "alpacaeval-hard", 195: "alpacaeval-length", 290: "mt-bench-easy", 318: "mt-bench-med",
    358: "mt-bench-hard", 395: "llmbar-natural", 495: "llmbar-adver-neighbor", 629: "llmbar-adver-GPTInst",
    721: "llmbar-adver-GPTOut", 768: "llmbar-adver-manual", 814: "refusals-dangerous", 914: "refusals-offensive",
    1014: "xstest-should-respond", 1039: "xstest-should-refuse", 1059: "xstest-should-respond",
    1084: "xstest-should-refuse", 1107: "xstest-should-respond", 1132: "xstest-should-refuse",
    1154: "xstest-should-respond", 1179: "xstest-should-refuse", 1203: "xstest-should-respond",
    1228: "xstest-should-refuse", 1249: "xstest-should-respond", 1299: "xstest-should-refuse",
    1306: "xstest-should-respond", 1331: "xstest-should-refuse", 1343: "xstest-should-respond",
    1393: "xstest-should-refuse", 1418: "donotanswer", 1554: "hep-python", 1718: "hep-go", 1882: "hep-cpp",
    2046: "hep-js", 2210: "hep-rust", 2374: "hep-java", 2538: "math-prm",
}  # fmt: skip
_STARTS = tuple(_FIRST_ID)


def reward_bench_subset(item: str) -> str | None:
    """Subset of a RewardBench 1 item (split `filtered`, ids 0 to 2984), or None where the id is not one of them.

    >>> reward_bench_subset("2538"), reward_bench_subset("2985")
    ('math-prm', None)
    """
    if not item.isdecimal() or int(item) >= REWARD_BENCH_ITEMS:
        return None
    return _FIRST_ID[_STARTS[bisect_right(_STARTS, int(item)) - 1]]
