"""LLM judges: their questions, how their answers are read, and how far they can be trusted."""

from rmlab.judges.asking import estimate
from rmlab.judges.chat import read_results, write_requests
from rmlab.judges.factory import CONVENTIONS, judge
from rmlab.judges.modes import AnswerJudge, Judge, ListJudge, PairJudge
from rmlab.judges.probes import examine
from rmlab.judges.questions import Template, load_template, shipped

__all__ = [
    "CONVENTIONS",
    "AnswerJudge",
    "Judge",
    "ListJudge",
    "PairJudge",
    "Template",
    "estimate",
    "examine",
    "judge",
    "load_template",
    "read_results",
    "shipped",
    "write_requests",
]
