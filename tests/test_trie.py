"""Tries and packs: every path spells its text, nothing is lost, the budget is kept, as
few tokens as can be.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab.inference.flex import BLOCK, Kind, block_mask, key_table
from rmlab.inference.planning import (
    WASTE,
    Packing,
    Part,
    filled,
    lay_out,
    pack,
    pad,
    plan,
)

DECODER = Packing(None)
ENCODER = Packing(None, shares=False)
BATCHES = Packing("cannot")


def law(*strategies):
    return lambda test: settings(deadline=None)(given(*strategies)(test))


@st.composite
def worlds(draw):
    """Texts with common prefixes of all lengths, in shuffled groups."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    texts, groups = [], []
    for group in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(1, 7))):
            mine = [text for text, g in zip(texts, groups, strict=True) if g == group]
            beginning = mine[rng.integers(len(mine))] if mine else np.zeros(0, int)
            shared = beginning[: rng.integers(len(beginning) + 1)]
            texts.append(np.r_[shared, rng.integers(0, 3, rng.integers(1, 60))])
            groups.append(group)
    order = rng.permutation(len(texts))
    return [texts[i] for i in order], np.array(groups)[order]


def ancestors(layout):
    """Dense (rows, rows) table: may row q (first axis) see row k (second axis)?"""
    rows = np.arange(len(layout.ids))
    return (rows[None, :] <= rows[:, None]) & (rows[:, None] < layout.ends[None, :])


def finished(part):
    """The texts whose last token is forwarded by now."""
    return part.texts[: len(part.texts) - part.is_cut]


def trie_by_hand(texts, groups):
    nodes = set()
    for text, group in zip(texts, groups, strict=True):
        nodes |= {(group, *text[: n + 1]) for n in range(len(text))}
    return len(nodes)


@law(worlds(), st.integers(1, 400), st.integers(1, 400))
def test_packs_forward_the_trie_once_in_order_and_keep_the_budget(world, budget, fill):
    """However small they are: a pack goes on exactly where the one before it stopped,
    and prompts are put together up to the fill.
    """
    texts, groups = world
    packs = pack(texts, groups, budget, fill=fill)
    every_text = np.concatenate([finished(part) for part in packs])
    assert sorted(every_text) == list(range(len(texts)))
    assert sum(part.tokens for part in packs) == trie_by_hand(texts, groups)
    assert packs[0].tokens == max(part.tokens for part in packs) <= budget
    for part in packs:
        assert part.tokens <= fill or len(set(groups[part.texts])) == 1
    for group in set(groups):
        turns = [turn for turn, part in enumerate(packs) if group in groups[part.texts]]
        assert turns == list(range(turns[0], turns[-1] + 1))
    for before, part in pairwise([Part(np.zeros(0, int), 0), *packs]):
        assert part.n_cached == before.n_to_cache
        if part.n_cached:
            left = texts[before.texts[-1]][: before.n_to_cache]
            assert left.tolist() == texts[part.texts[0]][: part.n_cached].tolist()
            assert not before.is_cut or before.texts[-1] == part.texts[0]
    assert packs[-1].n_to_cache == 0


@law(worlds(), st.integers(1, 400))
def test_every_path_spells_its_text(world, budget):
    """Up to where a text is cut."""
    texts, groups = world
    for part in pack(texts, groups, budget):
        layout = lay_out(part, texts)
        assert layout.forwarded == part.tokens == len(layout.ids) - part.n_cached
        spelled = [texts[text] for text in part.texts]
        if part.is_cut:
            spelled[-1] = spelled[-1][: part.n_to_cache]
        paths = [layout.path(text) for text in range(len(spelled))]
        for ids, path, run in zip(spelled, paths, layout.runs, strict=True):
            assert layout.ids[path].tolist() == ids.tolist()
            assert layout.positions[path].tolist() == list(range(len(ids)))
            assert run.offset == len(path) - (run.stop - run.start)
        owner = np.repeat(np.arange(len(spelled)), [*map(len, spelled)])
        positions = np.concatenate([np.arange(len(ids)) for ids in spelled])
        rows = layout.rows(owner, positions)
        assert rows.tolist() == np.concatenate(paths).tolist()


@law(worlds(), st.integers(1, 200))
def test_runs_and_segments_are_the_path_that_a_row_sees(world, budget):
    """Each pair of rows once, so that nothing is summed twice."""
    texts, groups = world
    for part in pack(texts, groups, budget):
        layout = lay_out(part, texts)
        n_rows = len(layout.ids)
        times = np.zeros((n_rows, n_rows), int)
        for start, stop, *_ in layout.runs:
            times[start:stop, start:stop] += np.tri(stop - start, dtype=int)
        for start, stop, first, end in layout.segments:
            times[first:end, start:stop] += 1
        seen = np.zeros((n_rows, n_rows), bool)
        for text in range(len(layout.runs)):
            path = layout.path(text)
            for place, row in enumerate(path):
                seen[row, path[: place + 1]] = True
        forwarded = slice(part.n_cached, None)
        assert (times[forwarded] == seen[forwarded]).all()
        assert (ancestors(layout)[forwarded] == seen[forwarded]).all()
        kept = [row for rows in layout.to_cache for row in range(*rows)]
        last = texts[part.texts[-1]]
        assert layout.ids[kept].tolist() == last[: part.n_to_cache].tolist()


@law(
    worlds(),
    st.integers(1, 300),
    st.sampled_from([DECODER, ENCODER, BATCHES]),
    st.randoms(use_true_random=False),
)
def test_a_plan_covers_every_text_in_any_order(world, budget, packing, random):
    texts, groups = world
    made = plan(texts, groups, budget=budget, packing=packing)
    covered = [made.copies[n] for part in made.parts for n in finished(part)]
    assert sorted(np.concatenate(covered)) == list(range(len(texts)))
    for copies in made.copies:
        assert len({texts[i].tobytes() for i in copies}) == 1
    first = [copies[0] for copies in made.copies]
    fewest = trie_by_hand([texts[i] for i in first], groups[first])
    if packing is not DECODER:
        fewest = sum(len(texts[i]) for i in first)
        assert not any(part.n_to_cache or part.is_cut for part in made.parts)
        for part in made.parts:
            assert part.tokens <= budget or len(part.texts) == 1
    assert made.tokens == fewest or (packing is BATCHES and made.tokens > fewest)
    order = random.sample(range(len(texts)), len(texts))
    moved = [texts[i] for i in order]
    assert plan(moved, groups[order], budget=budget, packing=packing).tokens == (
        made.tokens
    )


@law(
    st.lists(st.integers(1, 300), min_size=1, max_size=60),
    st.integers(1, 2000),
    st.sampled_from([0, WASTE, 0.2]),
)
def test_batches_waste_little_and_keep_the_budget(lengths, budget, waste):
    parts = pad(lengths, budget, waste)
    every_text = np.concatenate([part.texts for part in parts])
    assert sorted(every_text) == list(range(len(lengths)))
    for part in parts:
        sizes = [lengths[i] for i in part.texts]
        assert part.tokens == max(sizes) * len(sizes)
        assert part.tokens <= budget or len(sizes) == 1
        assert part.tokens - sum(sizes) <= waste * part.tokens


def test_the_ends_of_what_can_be_planned():
    same = [np.array([1, 2], np.int32), np.array([1, 2], np.int64), np.array([1])]
    copies = plan(same, [0, 0, 0]).copies
    assert [texts.tolist() for texts in copies] == [[0, 1], [2]]
    for packing in (DECODER, ENCODER, BATCHES):
        assert plan([], [], packing=packing).parts == []
    with pytest.raises(ValueError, match="budget=0"):
        _ = plan([np.ones(3)], [0], budget=0).parts


@pytest.mark.parametrize("window", [None, 40, 200])
@pytest.mark.parametrize("causal", [True, False])
def test_the_tables_agree_with_the_dense_mask(causal, window):
    """Every block taken as full is full, every block left out is empty, and the mask
    function is the path mask.
    """
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 9, 150)
    texts = [np.r_[prompt, rng.integers(0, 9, n)] for n in (300, 10, 200, 70)]
    texts.append(rng.integers(0, 9, 333))
    groups = [0, 0, 0, 0, 1] if causal else range(5)
    layout = lay_out(pack(texts, groups, 10_000)[0], texts)
    n_rows, n_filled = len(layout.ids), filled(len(layout.ids))
    seen = np.zeros((n_filled, n_filled), bool)
    paths_seen = ancestors(layout)
    seen[:n_rows, :n_rows] = paths_seen if causal else paths_seen | paths_seen.T
    if window is not None:
        distance = np.abs(layout.positions[:, None] - layout.positions[None, :])
        seen[:n_rows, :n_rows] &= distance < window

    kind = Kind(window, None, None, causal)
    mask = block_mask(torch.from_numpy(key_table(layout)), n_filled, kind)
    rows = torch.arange(n_filled)
    in_view = mask.mask_mod(0, 0, rows[:, None], rows[None, :]).numpy()
    assert (in_view == seen).all()
    n_blocks = n_filled // BLOCK
    full, some = np.zeros((2, n_blocks, n_blocks), bool)
    for i in range(n_blocks):
        full[i, mask.full_kv_indices[0, 0, i, : mask.full_kv_num_blocks[0, 0, i]]] = 1
        some[i, mask.kv_indices[0, 0, i, : mask.kv_num_blocks[0, 0, i]]] = 1
    blocks = seen.reshape(n_blocks, BLOCK, n_blocks, BLOCK)
    assert not (full & some).any()
    assert (blocks.all((1, 3)) | ~full).all()
    assert (full | some)[blocks.any((1, 3))].all()
    if window is None:
        assert full.any()
        assert (blocks.any((1, 3)) == (full | some)).all()
