"""Draw docs/trie.svg: three answers to one prompt as padded rows, and as the trie that
is forwarded.
"""

from pathlib import Path

import matplotlib
from matplotlib import pyplot as plt

from rmlab import toy
from rmlab.inference.encoding import encode
from rmlab.inference.planning import lay_out, pack

PROMPT = "Which planet has the most moons?"
ANSWERS = [
    "Saturn has the most moons, more than a hundred.",
    "Saturn has the most moons, exactly nine.",
    "I think that it is Mars.",
]
SHORT = {
    "<|begin_of_text|>": "begin",
    "<|start_header_id|>": "<",
    "<|end_header_id|>": ">",
    "<|eot_id|>": "end",
}
COLOURS = {"prompt": "#c9dcee", "answer": "#fbe3c3", "padding": "#eeeeee"}


def main():
    """Write the figure beside this file."""
    words = toy.tokenizer([PROMPT, *ANSWERS, "user assistant"] * 20, vocab_size=1024)
    encoded = encode(words, [PROMPT] * len(ANSWERS), ANSWERS)
    names = [[_shown(words.decode([token])) for token in ids] for ids in encoded.ids]
    layout = lay_out(pack(encoded.ids, encoded.groups, 4096)[0], encoded.ids)
    order = pack(encoded.ids, encoded.groups, 4096)[0].texts
    start, longest = int(encoded.response_start[0]), max(map(len, names))

    figure, (padded, trie) = plt.subplots(
        2, 1, figsize=(13, 4.4), sharex=True, layout="constrained"
    )
    for row, tokens in enumerate(names):
        for place in range(longest):
            kind = (
                "padding"
                if place >= len(tokens)
                else "prompt"
                if place < start
                else "answer"
            )
            _box(padded, place, row, tokens[place] if place < len(tokens) else "", kind)
    for row, (text, run) in enumerate(zip(order, layout.runs, strict=True)):
        for place in range(run.offset, len(names[text])):
            _box(
                trie,
                place,
                row,
                names[text][place],
                "prompt" if place < start else "answer",
            )
        if row:
            origin = max(r for r in range(row) if layout.runs[r].offset < run.offset)
            trie.plot(
                [run.offset - 0.5, run.offset - 0.5, run.offset],
                [origin + 0.4, row, row],
                color="0.3",
                lw=1.2,
            )
    rows = len(names)
    _finish(
        padded,
        rows,
        longest,
        f"A batch, padded to the longest: {rows * longest} tokens go through the model",
    )
    title = f"One trie: {len(layout.ids)} tokens"
    _finish(
        trie,
        rows,
        longest,
        f"{title}; each text reads its own path from left to right",
    )
    matplotlib.rcParams.update({"svg.hashsalt": "trie", "svg.fonttype": "path"})
    figure.savefig(Path(__file__).with_name("trie.svg"), metadata={"Date": None})


def _box(ax, place, row, text, kind):
    style = {
        "facecolor": COLOURS[kind],
        "edgecolor": "white",
        "hatch": "////" if kind == "padding" else None,
    }
    ax.add_patch(plt.Rectangle((place, row - 0.4), 1, 0.8, **style))
    ax.text(place + 0.5, row, text, ha="center", va="center", fontsize=6.5)


def _shown(text):
    return SHORT.get(text, text.strip() or "↵")


def _finish(ax, rows, longest, title):
    ax.set(xlim=(0, longest), ylim=(rows - 0.4, -0.6), xticks=[], yticks=[])
    ax.set_title(title, loc="left", fontsize=11)
    for side in ax.spines.values():
        side.set_visible(False)


if __name__ == "__main__":
    main()
