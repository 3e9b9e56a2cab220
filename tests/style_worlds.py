"""Scores whose price of style is known, for the tests of bias."""

import numpy as np
import pandas as pd

STYLES = ("concise", "plain", "markdown")


def world(
    n=200,
    *,
    skill=1.0,
    style=0.5,
    length=0.0,
    noise=1.0,
    seed=0,
    model="m",
    domain="chat",
):
    """Scores and features of n prompts, six answers each: lengths do not depend on the
    label.

    score = level of the prompt + skill * right + style * steps + length *
    log2(characters) + noise.
    """
    rng = np.random.default_rng(seed)
    rows = [
        (str(i), label, slot)
        for i in range(n)
        for label in ("chosen", "rejected")
        for slot in range(3)
    ]
    keys = pd.DataFrame(rows, columns=["id", "label", "slot"]).assign(
        benchmark="b", domain=domain
    )
    keys["style"] = np.array(STYLES)[keys["slot"]]
    steps = keys["slot"].to_numpy()
    size = np.repeat(rng.normal(8, 1, n), 6)
    characters = np.maximum(
        2 ** (size + 0.5 * steps + rng.normal(0, 1, 6 * n)), 1
    ).round()
    marks = rng.poisson(np.where(steps == 2, 6.0, 0.5))
    score = (
        np.repeat(rng.normal(0, 10, n), 6)
        + skill * (keys["label"] == "chosen").to_numpy()
        + style * steps
        + length * np.log2(characters)
        + noise * rng.normal(0, 1, 6 * n)
    )
    features = keys.drop(columns="style").assign(characters=characters, markdown=marks)
    return keys.assign(model=model, score=score), features
