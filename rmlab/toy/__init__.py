"""A small world for lessons and tests: questions, annotators with a known taste, and models trained in seconds."""

from rmlab.toy import exercises_measure, exercises_use  # noqa: F401 they register the exercises
from rmlab.toy.dial import Dial, scorer
from rmlab.toy.exercises import EXERCISES, check, todo
from rmlab.toy.models import ARCHITECTURES, CHAT_TEMPLATES, TEXTS, save_model, tokenizer
from rmlab.toy.optimizing import RIGHT, best_of_n, optimize
from rmlab.toy.policies import TrainedPolicy, train_dpo
from rmlab.toy.preferences import preferences
from rmlab.toy.serving import Served, serve
from rmlab.toy.training import Trained, train
from rmlab.toy.world import FACTS, TOPICS, world

__all__ = [
    "ARCHITECTURES",
    "CHAT_TEMPLATES",
    "EXERCISES",
    "FACTS",
    "RIGHT",
    "TEXTS",
    "TOPICS",
    "Dial",
    "Served",
    "Trained",
    "TrainedPolicy",
    "best_of_n",
    "check",
    "optimize",
    "preferences",
    "save_model",
    "scorer",
    "serve",
    "todo",
    "tokenizer",
    "train",
    "train_dpo",
    "world",
]
