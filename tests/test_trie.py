"""Tries and packs: every path spells its text, nothing is lost, the budget is kept, as
few tokens as can be.
"""

import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmlab import toy
from rmlab.inference.encoding import encode
from rmlab.inference.flex import BLOCK, Kind, block_mask, key_table
from rmlab.inference.planning import (
    CPU_BUDGET,
    WASTE,
    Packing,
    Part,
    distinct,
    filled,
    lay_out,
    pack,
    pad,
    plan,
)

DECODER, ENCODER, BATCHES = (
    Packing(None),
    Packing(None, causal=False),
    Packing("cannot"),
)


def law(*strategies):
    return lambda test: settings(deadline=None)(given(*strategies)(test))


@st.composite
def worlds(draw):
    """Texts with common beginnings of all lengths, in shuffled groups."""
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


def paths(layout):
    """The rows of each text."""
    return [layout.path(text) for text in range(len(layout.runs))]


def finished(part):
    """The texts whose last token is forwarded by now."""
    return part.texts[: len(part.texts) - part.is_cut]


def trie_by_hand(texts, groups):
    return len(
        {
            (g, *text[: n + 1])
            for text, g in zip(texts, groups, strict=True)
            for n in range(len(text))
        }
    )


@law(worlds(), st.integers(1, 400), st.booleans())
def test_packs_finish_every_text_once_and_keep_the_budget(world, budget, caches):
    texts, groups = world
    first = [copies[0] for copies in distinct(texts)]
    kept = [texts[i] for i in first]
    groups = groups[first]
    packs = pack(kept, groups, budget, caches=caches)
    assert sorted(np.concatenate([finished(part) for part in packs])) == list(
        range(len(kept))
    )
    for part in packs:
        assert 0 < part.tokens <= budget or not (caches or len(part.texts) > 1)
    assert packs[0].tokens == max(part.tokens for part in packs)
    for group in set(groups) if caches else ():
        turns = [turn for turn, part in enumerate(packs) if group in groups[part.texts]]
        assert turns == list(range(turns[0], turns[-1] + 1)), (
            "a prompt's packs follow one another"
        )


@law(worlds(), st.integers(1, 400))
def test_every_token_is_forwarded_once_however_small_the_packs(world, budget):
    """Together the packs forward the trie; a pack goes on exactly where the one before
    it stopped.
    """
    texts, groups = world
    packs = pack(texts, groups, budget)
    assert sum(part.tokens for part in packs) == trie_by_hand(texts, groups)
    for before, part in pairwise([Part(np.zeros(0, int), 0), *packs]):
        assert part.n_cached == before.n_to_cache
        if part.n_cached:
            left = texts[before.texts[-1]][: before.n_to_cache]
            assert left.tolist() == texts[part.texts[0]][: part.n_cached].tolist()
            assert not before.is_cut or before.texts[-1] == part.texts[0]
    assert packs[-1].n_to_cache == 0


@law(worlds(), st.integers(1, 400), st.integers(1, 400))
def test_prompts_are_put_together_up_to_the_fill(world, budget, fill):
    texts, groups = world
    packs = pack(texts, groups, budget, fill=fill)
    assert all(
        part.tokens <= fill for part in packs if len(set(groups[part.texts])) > 1
    )
    made = plan(texts, groups, budget=budget, fill=fill)
    prompts = [
        {groups[made.copies[text][0]] for text in part.texts} for part in made.parts
    ]
    assert all(
        part.tokens <= fill
        for part, shared in zip(made.parts, prompts, strict=True)
        if len(shared) > 1
    )
    assert sum(part.tokens for part in packs) == sum(
        part.tokens for part in pack(texts, groups, budget)
    )


@law(worlds(), st.integers(1, 400))
def test_every_path_spells_its_text(world, budget):
    """Up to where a text is cut."""
    texts, groups = world
    for part in pack(texts, groups, budget):
        layout = lay_out(part, texts)
        assert layout.forwarded == part.tokens
        assert len(layout.ids) == part.tokens + part.n_cached
        spelled = [texts[text] for text in part.texts]
        spelled[-1] = spelled[-1][: part.n_to_cache] if part.is_cut else spelled[-1]
        for ids, path, run in zip(spelled, paths(layout), layout.runs, strict=True):
            assert layout.ids[path].tolist() == ids.tolist()
            assert layout.positions[path].tolist() == list(range(len(ids)))
            rows = np.concatenate(
                [np.arange(a, b) for a, b in [*run.before, (run.start, run.stop)]]
            )
            assert rows.tolist() == path.tolist()
            assert run.offset == len(path) - (run.stop - run.start)
        owner = np.repeat(np.arange(len(spelled)), [*map(len, spelled)])
        positions = np.concatenate([np.arange(len(ids)) for ids in spelled])
        assert (
            layout.rows(owner, positions).tolist()
            == np.concatenate(paths(layout)).tolist()
        )


@law(worlds())
def test_a_row_sees_its_path_and_nothing_else(world):
    texts, groups = world
    for part in pack(texts, groups, 9999):
        layout = lay_out(part, texts)
        seen = np.zeros((part.tokens, part.tokens), bool)
        for path in paths(layout):
            for at, row in enumerate(path):
                seen[row, path[: at + 1]] = True
        assert (ancestors(layout) == seen).all()


@law(worlds(), st.integers(1, 200))
def test_runs_and_segments_are_all_that_a_row_sees(world, budget):
    """Each pair of rows once, so that nothing is summed twice."""
    texts, groups = world
    for part in pack(texts, groups, budget):
        layout = lay_out(part, texts)
        times = np.zeros((len(layout.ids), len(layout.ids)), int)
        for start, stop, *_ in layout.runs:
            times[start:stop, start:stop] += np.tri(stop - start, dtype=int)
        for start, stop, first, end in layout.segments:
            times[first:end, start:stop] += 1
        assert (times[part.n_cached :] == ancestors(layout)[part.n_cached :]).all()
        left = (
            np.concatenate([np.arange(*rows) for rows in layout.to_cache])
            if part.n_to_cache
            else []
        )
        assert (
            layout.ids[left].tolist()
            == texts[part.texts[-1]][: part.n_to_cache].tolist()
            if part.n_to_cache
            else not len(left)
        )


@law(worlds(), st.randoms(use_true_random=False))
def test_the_order_of_the_texts_does_not_matter(world, random):
    texts, groups = world
    order = random.sample(range(len(texts)), len(texts))
    moved = plan([texts[i] for i in order], groups[order], budget=150)
    made = plan(texts, groups, budget=150)
    assert moved.tokens == made.tokens


@law(worlds(), st.integers(1, 300), st.sampled_from([DECODER, ENCODER, BATCHES]))
def test_a_plan_covers_every_text(world, budget, packing):
    texts, groups = world
    made = plan(texts, groups, budget=budget, packing=packing)
    covered = np.concatenate(
        [made.copies[n] for part in made.parts for n in finished(part)]
    )
    assert sorted(covered) == list(range(len(texts)))
    for copies in made.copies:
        assert len({texts[i].tobytes() for i in copies}) == 1
    distinct_texts = [texts[copies[0]] for copies in made.copies]
    fewest = trie_by_hand(distinct_texts, groups[[copies[0] for copies in made.copies]])
    if packing is not DECODER:
        fewest = sum(map(len, distinct_texts))
    assert made.tokens >= fewest
    assert packing is BATCHES or made.tokens == fewest
    assert packing is DECODER or not any(
        part.n_to_cache or part.is_cut for part in made.parts
    ), "a text is in one pack"


@law(
    st.lists(st.integers(1, 300), min_size=1, max_size=60),
    st.integers(1, 2000),
    st.sampled_from([0, WASTE, 0.2]),
)
def test_batches_waste_little_and_keep_the_budget(lengths, budget, waste):
    parts = pad(lengths, budget, waste)
    assert sorted(np.concatenate([part.texts for part in parts])) == list(
        range(len(lengths))
    )
    for part in parts:
        sizes = [lengths[i] for i in part.texts]
        assert part.tokens == max(sizes) * len(sizes)
        assert part.tokens <= budget or len(sizes) == 1
        assert part.tokens - sum(sizes) <= waste * part.tokens


def test_equal_ids_of_other_number_types_are_one_text():
    made = plan(
        [np.array([1, 2], np.int32), np.array([1, 2], np.int64), np.array([1])],
        [0, 0, 0],
    )
    assert [copies.tolist() for copies in made.copies] == [[0, 1], [2]]


def test_nothing_to_plan():
    assert plan([], []).tokens == 0
    assert plan([], [], packing=ENCODER).parts == []
    assert plan([], [], packing=BATCHES).parts == []


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ValueError, match="budget=0"):
        plan([np.ones(3)], [0], budget=0)


@pytest.mark.parametrize("window", [None, 40, 200])
@pytest.mark.parametrize("causal", [True, False])
def test_the_tables_agree_with_the_dense_mask(causal, window):
    """Every block taken as full is full, every block left out is empty, and the mask
    function is the path mask.
    """
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 9, 150)
    texts = [np.r_[prompt, rng.integers(0, 9, n)] for n in (300, 10, 200, 70)] + [
        rng.integers(0, 9, 333)
    ]
    layout = lay_out(
        pack(texts, [0, 0, 0, 0, 1] if causal else range(5), 10_000)[0], texts
    )
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
    blocks = n_filled // BLOCK
    full, some = np.zeros((2, blocks, blocks), bool)
    for i in range(blocks):
        full[i, mask.full_kv_indices[0, 0, i, : mask.full_kv_num_blocks[0, 0, i]]] = (
            True
        )
        some[i, mask.kv_indices[0, 0, i, : mask.kv_num_blocks[0, 0, i]]] = True
    assert not (full & some).any()
    for i in range(blocks):
        for j in range(blocks):
            part = seen[i * BLOCK : (i + 1) * BLOCK, j * BLOCK : (j + 1) * BLOCK]
            assert part.all() or not full[i, j]
            assert part.any() == (full[i, j] or some[i, j]) or window is not None
            assert not part.any() or full[i, j] or some[i, j]
    assert window is not None or full.any()


@pytest.fixture(scope="module")
def real_texts(shared_data):
    """The texts of the four RM-Bench files, as token ids of a tokenizer trained on a
    tenth of them.
    """
    prompts, responses = [], []
    for name in ("chat", "code", "safety-refuse", "safety-response"):
        path = shared_data / "rm-bench" / f"{name}_filtered.json"
        if not path.is_file():
            pytest.skip(f"{path.name} is not on this machine")
        for row in json.loads(path.read_text()):
            texts = [*row["chosen"], *row["rejected"]]
            prompts += [row["prompt"]] * len(texts)
            responses += texts
    words = toy.tokenizer(responses[::10], vocab_size=4096)
    return encode(words, prompts, responses)


def test_tokens_forwarded_on_rm_bench(real_texts):
    """The per-prompt tries, and far fewer than without sharing."""
    made = plan(real_texts.ids, real_texts.groups)
    whole = plan(real_texts.ids, real_texts.groups, budget=10**9)
    assert made.tokens == whole.tokens
    assert made.tokens < 0.85 * sum(map(len, real_texts.ids))
    full = plan(real_texts.ids, real_texts.groups, fill=None)
    assert full.tokens == made.tokens
    assert full.tokens >= 0.9 * CPU_BUDGET * (len(full.parts) - 1)


@pytest.mark.parametrize("budget", [2048, 4096, 16384, 65536])
def test_tokens_forwarded_on_rm_bench_without_packs(real_texts, budget):
    made = plan(real_texts.ids, real_texts.groups, budget=budget, packing=BATCHES)
    packs = plan(real_texts.ids, real_texts.groups, budget=budget, packing=ENCODER)
    assert packs.tokens == sum(len(real_texts.ids[n[0]]) for n in packs.copies)
    assert made.tokens <= 1.01 * packs.tokens
