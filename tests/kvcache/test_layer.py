"""A layer against a plain reference: the same operations on dequantised tensors, and a token packed once."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.errors import ConfigError, KVCacheError
from ctxkit.kvcache.codecs import get_codec
from ctxkit.kvcache.layer import CompressedLayer, LayerSettings

torch = pytest.importorskip("torch")

HEADS, DIM = 2, 32


def states(rows: int, tokens: int, seed: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    keys, values = (torch.randn(rows, HEADS, tokens, DIM, generator=generator) for _ in range(2))
    return keys, values


@dataclass
class Reference:
    """What attention should see: whole tensors, and beside them what the packed tokens look like once decoded."""

    options: LayerSettings
    rows: int

    def __post_init__(self) -> None:
        self.seen = list(states(self.rows, 0, 0))
        self.packed = list(states(self.rows, 0, 0))

    def update(self, new: tuple[Any, Any]) -> None:
        self.seen = [torch.cat(pair, 2) for pair in zip(self.seen, new, strict=True)]

    def compress(self) -> None:
        block, window, sinks = self.options.block, self.options.window, self.options.sinks
        while True:
            start = self.packed[0].shape[2]
            stop = (start // block + 1) * block
            if self.seen[0].shape[2] - stop < window:
                return
            exact = [x[:, :, start:stop] for x in self.seen]
            given = [x.clone() for x in exact]
            for x in given:
                for place in range(start, min(sinks, stop)):
                    x[:, :, place - start] = x[:, :, min(sinks, stop) - start if sinks < stop else stop - start - 1]
            codec = self.options.codec
            back = codec.decode(codec.encode(*given), tokens=stop - start, dtype=torch.float32)
            for which in range(2):
                rounded = back[which].clone()
                if start < sinks:
                    rounded[:, :, : sinks - start] = exact[which][:, :, : sinks - start]
                self.packed[which] = torch.cat([self.packed[which], rounded], 2)

    def demote(self) -> None:
        self.compress()
        end = self.packed[0].shape[2]
        self.seen = [torch.cat([old, x[:, :, end:]], 2) for old, x in zip(self.packed, self.seen, strict=True)]

    def change(self, change: Any) -> None:
        self.seen, self.packed = ([change(x) for x in pair] for pair in (self.seen, self.packed))


CODECS = [get_codec("int4"), get_codec("none"), get_codec("int4-hq")]


def make(codec: int, *, window: int = 5, sinks: int = 2, **options: Any) -> LayerSettings:
    chosen = CODECS[codec]
    return LayerSettings(codec=chosen, block=8, window=window, sinks=sinks, window_dtype="exact", **options)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.integers(1, 40)),
        st.tuples(st.just("update"), st.just(1)),
        st.tuples(st.sampled_from(["demote", "activate", "compress", "repeat"]), st.just(0)),
        st.tuples(st.just("crop"), st.integers(1, 30)),
        st.tuples(st.sampled_from(["reorder", "select"]), st.integers(0, 100)),
    ),
    min_size=1,
    max_size=10,
)


@given(STEPS, st.integers(0, 2), st.integers(0, 9), st.integers(0, 3))
@settings(max_examples=150)
def test_every_operation_is_that_of_a_plain_cache(steps: list[Any], codec: int, window: int, sinks: int) -> None:
    options = make(codec, window=window, sinks=sinks)
    layer, reference = CompressedLayer(options), Reference(options, 2)
    for number, (name, amount) in enumerate([("update", 21), *steps]):
        rows = reference.seen[0].shape[0]
        if name == "update":
            new = states(rows, amount, number)
            reference.update(new)
            for found, expected in zip(layer.update(*new), reference.seen, strict=True):
                assert torch.equal(found, expected)
        elif name == "crop":
            layer.crop(-amount)
            kept = max(0, reference.seen[0].shape[2] - amount)
            reference.change(lambda x, kept=kept: x[:, :, :kept])
        elif name == "reorder":
            order = torch.tensor([(amount + row) % rows for row in range(rows)])
            layer.reorder_cache(order)
            reference.change(lambda x, order=order: x[order])
        elif name == "select":
            chosen = torch.tensor([amount % rows])
            layer.batch_select_indices(chosen)
            reference.change(lambda x, chosen=chosen: x[chosen])
        elif name == "repeat":
            if rows < 4:
                layer.batch_repeat_interleave(2)
                reference.change(lambda x: x.repeat_interleave(2, 0))
        elif name == "activate":
            layer.activate()
        else:
            if layer.active:  # what is idle has been packed as far as it goes
                getattr(reference, name)()
            getattr(layer, name)()
        assert layer.get_seq_length() == reference.seen[0].shape[2]
        assert layer.packed.tokens == reference.packed[0].shape[2]
        for found, expected in zip((layer.keys, layer.values), reference.seen, strict=True):
            assert torch.equal(found, expected), (name, number)
        assert layer.memory().total == reachable(layer)


def reachable(root: object) -> int:
    """Bytes of every storage that can be reached from an object."""
    found, todo, storages = set(), [root], {}
    while todo:
        each = todo.pop()
        if id(each) in found or isinstance(each, type) or type(each).__name__ in ("module", "function"):
            continue
        found.add(id(each))
        if isinstance(each, torch.Tensor):
            storages[each.untyped_storage().data_ptr()] = each.untyped_storage().nbytes()
            continue
        todo.extend(gc.get_referents(each))
    return sum(storages.values())


def test_a_block_lies_where_it_was_packed() -> None:
    options = make(0, window=8)
    layer = CompressedLayer(options)
    layer.update(*states(1, 43, 1))
    layer.demote()
    before = [layer.block(index) for index in range(4)]
    for step in range(60):  # many blocks later: runs were joined, nothing was packed again
        layer.update(*states(1, 1, step))
        layer.demote()
    assert len(layer.packed.runs) <= 5
    for index, block in enumerate(before):
        after = layer.block(index)
        assert block.keys() == after.keys()
        assert all(torch.equal(block[name], after[name]) for name in block)
    assert "sink_keys" in before[0] and "sink_keys" not in before[1]


def test_blocks_in_the_window_are_packed_for_the_caller_only() -> None:
    layer = CompressedLayer(make(0, window=100))
    layer.update(*states(1, 40, 1))
    keys = layer.keys.clone()  # type: ignore[union-attr]
    block = layer.block(2)
    layer.demote()
    assert layer.packed.tokens == 0
    assert torch.equal(layer.keys, keys)
    back = get_codec("int4").decode(block, tokens=8, dtype=torch.float32)[0]
    assert 0 < (back - keys[:, :, 16:24]).abs().max() < 1


def test_blocks_make_the_same_layer_again() -> None:
    options = make(0, window=0)
    layer = CompressedLayer(options)
    layer.update(*states(2, 64, 1))
    layer.demote()
    again = CompressedLayer(options)
    again.load_blocks([layer.block(index) for index in range(8)], dtype=torch.float32, device="cpu")
    assert torch.equal(again.keys, layer.keys)
    assert torch.equal(again.values, layer.values)
    assert again.memory() == layer.memory()
    with pytest.raises(KVCacheError, match="empty layer"):
        again.load_blocks([layer.block(0)], dtype=torch.float32, device="cpu")


def test_a_layer_that_is_not_resident_holds_nothing_in_compute_precision_between_tokens() -> None:
    layer = CompressedLayer(make(0, window=8, resident=False))
    keys, values = states(1, 80, 1)
    seen, _ = layer.update(keys, values)
    assert torch.equal(seen, keys), "a pass sees its own tokens exactly"
    assert not layer.active
    assert layer.memory().working == 0
    later, _ = layer.update(*states(1, 1, 2))
    assert later.shape[2] == 81
    assert not torch.equal(later[:, :, :80], keys)
    assert torch.equal(later[:, :, 72:80], keys[:, :, 72:80]), "the window is exact"
    assert torch.equal(later[:, :, :2], keys[:, :, :2]), "so are the sinks"


def test_an_eager_layer_does_not_depend_on_when_it_was_demoted() -> None:
    options = make(0, window=8, eager=True)
    often, never = CompressedLayer(options), CompressedLayer(options)
    for step in range(40):
        new = states(1, 1 + 7 * (step % 3), step)
        seen = often.update(*new)
        assert all(torch.equal(a, b) for a, b in zip(seen, never.update(*new), strict=True))
        if step % 4 == 0:
            often.demote()


@pytest.mark.parametrize("codec", range(3))
def test_sinks_come_after_the_padding_of_each_row(codec: int) -> None:
    options = make(codec, window=0, sinks=3)
    layer = CompressedLayer(options, padding=torch.tensor([0, 13, 70]))
    keys, values = states(3, 96, 1)
    layer.update(keys, values)
    layer.demote()
    assert layer.packed.tokens == 96
    for row, pads in enumerate([0, 13, 70]):
        assert torch.equal(layer.keys[row, :, pads : pads + 3], keys[row, :, pads : pads + 3])
        assert torch.equal(layer.values[row, :, pads : pads + 3], values[row, :, pads : pads + 3])
    if options.codec.name != "none":
        assert not torch.equal(layer.keys[1, :, :3], keys[1, :, :3])
    layer.batch_select_indices(torch.tensor([2]))
    layer.activate()
    assert torch.equal(layer.keys[0, :, 70:73], keys[2, :, 70:73])


@pytest.mark.parametrize("per_head", [False, True])
def test_evicted_tokens_free_memory_and_keep_their_positions(per_head: bool) -> None:
    layer = CompressedLayer(make(0, window=8))
    keys, values = states(1, 100, 1)
    layer.update(keys, values)
    before = layer.memory().total
    indices = torch.arange(0, 100, 2)
    if per_head:
        indices = torch.stack([indices, indices + 1])[None]
    layer.keep(indices)
    assert layer.memory().total <= before // 2
    assert (layer.get_seq_length(), layer.length, layer.removed) == (100, 50, 50)
    assert layer.get_mask_sizes(3) == (53, 50)
    expected = keys[:, :, ::2] if not per_head else torch.stack([keys[:, 0, ::2], keys[:, 1, 1::2]], 1)
    assert torch.equal(layer.keys, expected)
    layer.demote()
    assert layer.packed.tokens == 40
    layer.crop(-60)
    assert (layer.get_seq_length(), layer.length) == (50, 0)


def test_float16_rests_as_it_is_and_float32_as_float16_where_it_fits() -> None:
    keys, values = states(1, 5, 1)
    values[0, 0, 0, 0] = 1e6
    layer = CompressedLayer(LayerSettings(codec=get_codec("int4")))
    layer.update(keys, values)
    layer.demote()
    assert layer.tail is not None
    assert (layer.tail[0].dtype, layer.tail[1].dtype) == (torch.float16, torch.float32)
    assert torch.equal(layer.values, values)
    assert torch.allclose(layer.keys, keys, rtol=1e-3)
    for dtype in (torch.bfloat16, torch.float16):
        layer = CompressedLayer(LayerSettings(codec=get_codec("int4")))
        layer.update(keys.to(dtype), keys.to(dtype))
        layer.demote()
        assert torch.equal(layer.keys, keys.to(dtype))


def test_masks_and_lengths_in_the_forms_of_every_version() -> None:
    layer = CompressedLayer(make(0))
    assert layer.get_seq_length() == 0
    layer.update(*states(1, 10, 1))
    assert layer.get_mask_sizes(4) == layer.get_mask_sizes(torch.arange(10, 14)) == (14, 0)
    assert layer.get_max_length() == layer.get_max_cache_shape() == -1
    layer.crop(6)  # keeps six
    assert layer.get_seq_length() == 6
    layer.crop(9)
    assert layer.get_seq_length() == 6
    layer.reset()
    assert layer.get_seq_length() == 0
    assert layer.memory().total == 0


def test_rows_that_do_not_match_are_refused() -> None:
    layer = CompressedLayer(make(0))
    layer.update(*states(2, 10, 1))
    with pytest.raises(KVCacheError, match="2 rows"):
        layer.update(*states(1, 1, 1))
    with pytest.raises(KVCacheError, match=r"\[5, 11\)"):
        layer.keys_values(5, 11)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"block": 0}, "block is 0"),
        ({"window": -1}, "window is -1"),
        ({"sinks": 65}, "sinks is 65"),
        ({"window_dtype": "float8"}, "float8"),
    ],
)
def test_wrong_settings(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        LayerSettings(**{"codec": get_codec("int4"), **options})
    assert caught.value.remedy


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("codec", range(3))
def test_on_a_gpu_it_is_what_it_is_on_the_processor(codec: int) -> None:
    layers = [CompressedLayer(make(codec, window=8)) for _ in range(2)]
    keys, values = states(2, 200, 1)
    for layer, device in zip(layers, ("cpu", "cuda"), strict=True):
        layer.update(keys.to(device), values.to(device))
        layer.demote()
        layer.activate(room=3)
    assert layers[1].keys.device.type == "cuda"  # type: ignore[union-attr]
    close = torch.isclose(layers[0].keys, layers[1].keys.cpu(), atol=1e-3)  # type: ignore[union-attr]
    assert close.float().mean() > 0.99, "a number between two codes may fall either way"
