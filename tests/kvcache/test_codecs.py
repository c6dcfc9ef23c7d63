"""Codecs: what comes back is near what went in, the bytes are as told, and blocks are cut and joined by indexing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctxkit.errors import ConfigError, KVCacheError
from ctxkit.kvcache.codecs import Codec, get_codec
from ctxkit.kvcache.codecs.codebook import _LEVELS, dequantise, quantise
from ctxkit.kvcache.codecs.int4 import Int4Codec
from ctxkit.kvcache.codecs.int4_hq import Int4HQCodec
from ctxkit.kvcache.codecs.packing import pack_bits, unpack_bits
from ctxkit.kvcache.codecs.rotation import rotate, rotation_size

torch = pytest.importorskip("torch")

NAMES = ["int4", "int4-hq", "int8", "none"]
WORST = {"int4": 0.15, "int4-hq": 0.12, "int8": 0.01, "none": 0.0}
"""Root of the mean squared error over that of normal numbers."""


def pair(*shape: int, seed: int = 0, dtype: Any = None) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    keys, values = (torch.randn(*shape, generator=generator).to(dtype or torch.float32) for _ in range(2))
    return keys, values


def decoded(codec: Any, keys: Any, values: Any) -> tuple[Any, Any]:
    found: tuple[Any, Any] = codec.decode(codec.encode(keys, values), tokens=keys.shape[-2], dtype=keys.dtype)
    return found


@pytest.mark.parametrize("name", NAMES)
class TestEveryCodec:
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
    def test_what_comes_back_is_near(self, name: str, dtype: str) -> None:
        keys, values = pair(2, 3, 64, 64, dtype=getattr(torch, dtype))
        for before, after in zip((keys, values), decoded(get_codec(name), keys, values), strict=True):
            assert after.dtype == before.dtype
            assert after.shape == before.shape
            error = (after.float() - before.float()).square().mean().sqrt() / before.float().square().mean().sqrt()
            assert error <= WORST[name] + (0 if dtype == "float32" or name == "none" else 0.005)

    @given(st.integers(0, 10**6), st.integers(1, 70), st.sampled_from([32, 48, 64, 80]))
    @settings(max_examples=25)
    def test_the_bytes_are_as_told(self, name: str, seed: int, tokens: int, dim: int) -> None:
        codec = get_codec(name)
        keys, values = pair(2, tokens, dim, seed=seed)
        block = codec.encode(keys, values)
        held = sum(tensor.untyped_storage().nbytes() for tensor in block.values())
        assert held == codec.nbytes(2, tokens, dim, itemsize=4)
        assert all(tensor.is_contiguous() for tensor in block.values())

    def test_rows_heads_and_blocks_are_selected_by_indexing(self, name: str) -> None:
        codec = get_codec(name)
        keys, values = pair(3, 2, 4, 64, 32)  # rows, heads, blocks
        whole = codec.encode(keys, values)
        for index in [(0,), (2, 1), (1, 0, 3), ([2, 0],), (slice(None), slice(None), 2)]:
            alone = codec.encode(keys[index], values[index])
            for key, tensor in whole.items():
                assert torch.equal(tensor[index], alone[key])

    def test_fewer_tokens_are_the_first_ones(self, name: str) -> None:
        codec = get_codec(name)
        keys, values = pair(1, 2, 64, 64)
        block = codec.encode(keys, values)
        whole = codec.decode(block, tokens=64, dtype=torch.float32)
        part = codec.decode(block, tokens=37, dtype=torch.float32)
        assert all(torch.equal(all_[..., :37, :], some) for all_, some in zip(whole, part, strict=True))

    def test_it_repeats_and_leaves_its_input_alone(self, name: str) -> None:
        codec = get_codec(name)
        keys, values = pair(1, 2, 64, 64)
        before = keys.clone(), values.clone()
        first, second = codec.encode(keys, values), codec.encode(keys, values)
        assert all(torch.equal(first[key], second[key]) for key in first)
        assert torch.equal(keys, before[0]) and torch.equal(values, before[1])

    def test_zeros_come_back_as_zeros(self, name: str) -> None:
        zeros = torch.zeros(1, 2, 64, 64)
        assert all(not tensor.any() for tensor in decoded(get_codec(name), zeros, zeros))

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
    def test_what_cannot_be_kept_is_not_hidden(self, name: str, bad: float) -> None:
        keys, values = pair(1, 2, 64, 64)
        keys[0, 0, 3, 5] = values[0, 1, 7, 9] = bad
        back = decoded(get_codec(name), keys, values)
        if name == "none":
            assert torch.equal(back[0].nan_to_num(), keys.nan_to_num())
            return
        assert not back[0][0, 0, 3, 5].isfinite()
        assert not back[1][0, 1, 7, 9].isfinite()
        assert back[0][0, 1].isfinite().all() and back[1][0, 0].isfinite().all()

    def test_keys_without_their_values_are_refused(self, name: str) -> None:
        with pytest.raises(KVCacheError, match="do not go with values"):
            get_codec(name).encode(torch.zeros(1, 2, 64, 64), torch.zeros(1, 2, 63, 64))


@pytest.mark.parametrize("bits", [4, 5])
def test_the_codebook_is_the_fixed_point_for_normal_numbers(bits: int) -> None:
    """Max's conditions: each level is the mean of what is nearer to it than to any other."""
    levels = np.array([0.0, *_LEVELS[bits]])  # below zero they are the same
    borders = np.array([0.0, *(levels[1:-1] + levels[2:]) / 2, np.inf])
    density = np.exp(-(borders**2) / 2) / math.sqrt(2 * math.pi)
    mass = np.diff([0.5 * (1 + math.erf(border / math.sqrt(2))) for border in borders])
    assert np.allclose(levels[1:], -np.diff(density) / mass, atol=3e-4)


@pytest.mark.parametrize("name", ["int4", "int4-hq"])
def test_a_head_that_has_no_groups_is_refused(name: str) -> None:
    with pytest.raises(KVCacheError, match="33 channels") as caught:
        get_codec(name).encode(torch.zeros(1, 2, 64, 33), torch.zeros(1, 2, 64, 33))
    assert "int8 or none" in caught.value.remedy


def test_int8_takes_any_head() -> None:
    keys, values = pair(1, 2, 10, 33)
    back = decoded(get_codec("int8"), keys, values)
    assert (back[0] - keys).abs().max() < 0.02


def test_bits() -> None:
    numbers = 2 * 64 * 64
    assert get_codec("int4").nbytes(1, 64, 64) * 8 / numbers == 4.5
    assert get_codec("int4-hq").nbytes(1, 64, 64) * 8 / numbers == 4.75
    assert get_codec("int8").nbytes(1, 64, 64) * 8 / numbers == 8.5
    assert get_codec("none").nbytes(1, 64, 64) * 8 / numbers == 16


def test_four_bits_are_packed_two_a_byte_around_a_zero_point_of_eight() -> None:
    keys = torch.tensor([float(code - 8) for code in range(16)] * 2).view(1, 1, 1, 32)
    plain = Int4Codec(rotate=False, centre=False)
    block = Int4Codec(rotate=False, search=False, centre=False).encode(keys, keys)
    assert block["keys"].shape == (1, 1, 1, 16)
    assert block["keys"].dtype == torch.uint8
    back, _ = plain.decode(plain.encode(keys, keys), tokens=1, dtype=torch.float32)
    assert torch.equal(back, keys), "the search finds the scale that loses nothing"


@given(st.integers(0, 1000), st.sampled_from([8, 16, 40, 64, 80]), st.sampled_from([4, 5]))
@settings(max_examples=25)
def test_codes_come_back_as_they_were(seed: int, count: int, bits: int) -> None:
    codes = torch.randint(0, 2**bits, (3, count), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    packed = pack_bits(codes, bits)
    assert packed.shape == (3, count * bits // 8)
    assert torch.equal(unpack_bits(packed, bits), codes.float())


@given(st.integers(0, 1000), st.integers(-24, 12), st.sampled_from([4, 5]))
@settings(max_examples=25)
def test_a_scale_of_a_byte_fits_numbers_of_every_size(seed: int, exponent: int, bits: int) -> None:
    x = pair(4, 128, seed=seed)[0] * 2.0**exponent
    back = dequantise(*quantise(x, 64, bits), bits)
    assert (back - x).square().mean().sqrt() < (0.11 if bits == 4 else 0.06) * x.square().mean().sqrt()


def test_a_group_with_one_large_number_keeps_it() -> None:
    x = torch.zeros(1, 64)
    x[0, 5] = 100.0
    back = dequantise(*quantise(x, 64, 5), 5)
    assert abs(float(back[0, 5]) - 100) < 10
    assert float(back[0, :5].abs().max()) < 3


def test_int4_hq_loses_less_of_keys_than_of_values_and_less_than_int4() -> None:
    keys, values = pair(1, 4, 256, 64)
    keys[..., 9] += 20
    errors = {}
    for name in ("int4", "int4-hq"):
        back = decoded(get_codec(name), keys, values)
        errors[name] = [
            float((after - before).square().mean()) for before, after in zip((keys, values), back, strict=True)
        ]
    assert errors["int4-hq"][0] < errors["int4-hq"][1] / 3
    assert errors["int4-hq"][0] < errors["int4"][0] / 2.5


def test_rotation_search_and_offsets_pay_each() -> None:
    keys, values = pair(1, 4, 256, 64)
    keys[..., 3] *= 12
    keys[..., 9] += 20
    errors = []
    for rotate_, search, centre in ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)):
        codec = Int4Codec(rotate=bool(rotate_), search=bool(search), centre=bool(centre))
        assert codec.nbytes(4, 256, 64) * 8 == 4.5 * 2 * keys.numel()
        back, _ = decoded(codec, keys, values)
        errors.append(float((back - keys).square().mean()))
    assert errors == sorted(errors, reverse=True)
    assert errors[3] < errors[2] / 2


def test_how_bytes_are_read_is_in_the_name() -> None:
    codecs: list[Codec] = [
        Int4Codec(),
        Int4Codec(search=False),
        Int4Codec(rotate=False),
        Int4Codec(centre=False),
        Int4HQCodec(),
    ]
    assert [codec.name for codec in codecs] == ["int4", "int4", "int4-unrotated", "int4-uncentred", "int4-hq"]


@given(st.sampled_from([16, 32, 48, 64, 80, 96, 128]), st.integers(0, 1000))
@settings(max_examples=25)
def test_the_rotation_keeps_lengths_and_is_its_own_inverse(dim: int, seed: int) -> None:
    x, _ = pair(5, dim, seed=seed)
    turned = rotate(x)
    assert torch.allclose(rotate(turned), x, atol=1e-5)
    assert torch.allclose(turned.norm(dim=-1), x.norm(dim=-1), rtol=1e-5)
    assert torch.equal(turned, x) == (rotation_size(dim) == 1)


def test_rotation_is_off_where_no_power_of_two_fits() -> None:
    assert [rotation_size(dim) for dim in (8, 40, 80, 96, 64, 72)] == [1, 1, 16, 32, 64, 1]


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="int4-hq") as caught:
        get_codec("int3")
    assert "int8" in caught.value.remedy


def test_a_codec_passes_through_and_anything_else_is_refused() -> None:
    codec = Int4Codec(rotate=False)
    assert get_codec(codec) is codec
    with pytest.raises(ConfigError, match="no encode"):
        get_codec(7)  # type: ignore[arg-type]
