"""Language models as judges: what they are asked, how their answers are read, and how far they can be trusted."""

from rmlab.judges.batch_files import read_results, write_requests
from rmlab.judges.budget import estimate
from rmlab.judges.factory import CONVENTIONS, judge
from rmlab.judges.modes import AnswerJudge, ListJudge, PairJudge
from rmlab.judges.probes import examine
from rmlab.judges.templates import Template, load_template, shipped

__all__ = [
    "CONVENTIONS",
    "AnswerJudge",
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
