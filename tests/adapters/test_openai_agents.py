"""The session of the OpenAI Agents SDK: its contract, and what is added. `make check-adapters` runs the SDK's own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="the extra `openai-agents` is not installed")

from agents import Agent, RunConfig, Runner
from agents.memory.session import Session
from agents.memory.session_settings import SessionSettings
from agents.testing import ScriptedModel
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from ctxkit import Message, ToolCall
from ctxkit.errors import ConfigError, HistoryError, ProtectedError, StorageError
from ctxkit.history import TailWindow, check_history
from ctxkit.storage import Keep, Store
from ctxkit_adapters.openai_agents import CtxkitSession, from_items, to_items
from tests.strategies import stored_texts

CALL = {"type": "function_call", "call_id": "c1", "name": "seat", "arguments": '{"row": 3}', "id": "fc_1"}
ITEMS: list[Any] = [
    {"role": "user", "content": "Which seat?"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look it up."}]},
    CALL,
    {"type": "function_call", "call_id": "c2", "name": "gate", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "3A"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "B4"}]},
    {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "3A, gate B4.", "annotations": [], "logprobs": []}],
    },
    {"role": "developer", "content": "Be brief."},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"role": "user", "content": [{"type": "input_image", "image_url": "https://a.b/c.png", "detail": "low"}]},
    {"type": "computer_call", "call_id": "c3", "id": "cc", "action": {"type": "wait"}, "status": "completed"},
    {"type": "computer_call_output", "call_id": "c3", "output": {"type": "computer_screenshot", "file_id": "f"}},
    {"type": "item_reference", "id": "x"},
]


async def test_items_come_back_as_they_came(store: Store) -> None:
    session = CtxkitSession("s", store)
    assert isinstance(session, Session)
    await session.add_items(ITEMS[:4])
    await session.add_items([])
    await session.add_items(ITEMS[4:])
    assert await session.get_items() == ITEMS
    popped = [await session.pop_item() for _ in ITEMS]
    assert popped == ITEMS[::-1]
    assert await session.pop_item() is None
    await session.add_items(ITEMS)
    await session.clear_session()
    assert await session.get_items() == []


async def test_a_limit_gives_exactly_the_newest_and_says_what_it_parts(tenant_store: Store) -> None:
    session = CtxkitSession("s", tenant_store, session_settings=SessionSettings(limit=2))
    await session.add_items(ITEMS[:7])
    for limit in range(9):
        assert await session.get_items(limit) == ITEMS[:7][max(0, 7 - limit) :]
        assert session.left_out == max(0, 7 - limit)
    assert await session.get_items() == ITEMS[5:7]
    assert session.parted == ("c2",)
    with pytest.raises(ConfigError):
        await session.get_items(-1)


async def test_whole_exchanges_are_never_parted(tenant_store: Store) -> None:
    session = CtxkitSession("s", tenant_store, whole=True)
    await session.add_items(ITEMS[:7])
    sizes = []
    for limit in range(8):
        items = await session.get_items(limit)
        assert items == ITEMS[:7][7 - len(items) :] and len(items) <= limit
        assert session.parted == ()
        sizes.append(len(items))
    assert sizes == [0, 1, 1, 1, 1, 1, 6, 7], "reasoning, both calls and both outputs go together"


async def test_what_the_store_holds_is_a_dialogue_of_ctxkit(tenant_store: Store) -> None:
    session = CtxkitSession("s", tenant_store)
    await session.add_items(ITEMS[:7])
    stored = tenant_store.sessions.messages("s")
    assert [message.role for message in stored] == ["user"] + ["assistant"] * 3 + ["tool"] * 2 + ["assistant"]
    assert stored[-1].text == "3A, gate B4."
    assert stored[2].tool_calls == (ToolCall("c1", "seat", '{"row": 3}'),)
    assert "output_text" not in json.dumps([message.to_openai() for message in stored]), "nothing of it is sent"


async def test_a_session_of_ctxkit_is_read_and_a_message_of_several_items_is_taken_back_one_by_one(
    tenant_store: Store,
) -> None:
    calls = (ToolCall("a", "f"), ToolCall("b", "g"))
    tenant_store.sessions.append("s", [Message("user", "Go."), Message("assistant", "Both.", tool_calls=calls)])
    session = CtxkitSession("s", tenant_store)
    items: list[Any] = await session.get_items()
    assert [item.get("call_id") or item["content"] for item in items] == ["Go.", "Both.", "a", "b"]
    for item in reversed(items):
        assert await session.pop_item() == item


async def test_a_window_gives_what_fits_repaired(tenant_store: Store) -> None:
    session = CtxkitSession("s", tenant_store, window=TailWindow(), max_tokens=80)
    assert await session.get_items() == []
    for number in range(30):
        await session.add_items([{"role": "user", "content": f"Question {number}, of some words"}])
    await session.add_items([CALL, {"role": "user", "content": "Never mind."}])  # type: ignore[list-item]
    items: list[Any] = await session.get_items()
    assert 3 < len(items) < 15 and session.left_out > 0
    assert items[-3:] == [
        CALL,
        {"type": "function_call_output", "call_id": "c1", "output": "[interrupted: this call has no result]"},
        {"role": "user", "content": "Never mind."},
    ]
    check_history(from_items(items))
    await session.add_items([{"role": "user", "content": "too long " * 200}])
    assert await session.get_items() == [] and session.left_out == 33


async def test_a_renamed_call_is_not_given_under_its_old_id(tenant_store: Store) -> None:
    output = {"type": "function_call_output", "call_id": "c1", "output": "x"}
    session = CtxkitSession("s", tenant_store, window=TailWindow(), max_tokens=500)
    await session.add_items([{"role": "user", "content": "x"}, CALL, output, CALL, output])  # type: ignore[list-item]
    items: list[Any] = await session.get_items()
    assert [item.get("call_id") for item in items] == [None, "c1", "c1", "c1_2", "c1_2"]


@pytest.mark.parametrize("item", ["text", None, 3, {"role": "user", "content": [3]}])
async def test_what_is_no_item_is_refused_and_nothing_is_stored(tenant_store: Store, item: Any) -> None:
    session = CtxkitSession("s", tenant_store)
    with pytest.raises(HistoryError) as caught:
        await session.add_items([ITEMS[0], item])
    assert caught.value.remedy
    assert await session.get_items() == []


async def test_wrong_parameters_and_what_no_database_holds(tenant_store: Store) -> None:
    for wrong in ({"window": TailWindow()}, {"max_tokens": 5}, {"window": "tail", "max_tokens": 5}):
        with pytest.raises(ConfigError):
            CtxkitSession("s", tenant_store, **wrong)
    with pytest.raises((ConfigError, StorageError)):
        CtxkitSession("", tenant_store)
    with pytest.raises(StorageError):
        await CtxkitSession("s", tenant_store).add_items([{"role": "user", "content": "a\x00b"}])


async def test_writers_at_once_lose_nothing_and_take_each_item_back_once(store: Store) -> None:
    sessions = [CtxkitSession("s", store) for _ in range(4)]
    await asyncio.gather(
        *(sessions[n % 4].add_items([{"role": "user", "content": str(n)}, CALL]) for n in range(12))  # type: ignore[list-item]
    )
    items: list[Any] = await sessions[0].get_items()
    assert len(items) == 24
    assert all(items[at + 1] == CALL for at in range(0, 24, 2)), "what was added together stands together"
    popped = await asyncio.gather(*(sessions[n % 4].pop_item() for n in range(24)))
    assert sorted(map(str, popped)) == sorted(map(str, items))
    assert await sessions[0].get_items() == []


async def test_a_change_that_has_begun_ends_before_the_cancellation(tenant_store: Store) -> None:
    session = CtxkitSession("s", tenant_store)
    task = asyncio.create_task(session.add_items([{"role": "user", "content": "once"}]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(await session.get_items()) in (0, 1)
    before = await session.get_items()
    await asyncio.sleep(0.05)
    assert await session.get_items() == before, "nothing is done after the caller was told"


async def test_what_a_branch_shares_stays(tenant_store: Store) -> None:
    session = CtxkitSession("s", tenant_store)
    await session.add_items(ITEMS[:2])
    tenant_store.sessions.branch("s", at=2, name="b")
    with pytest.raises(ProtectedError):
        await session.pop_item()
    await session.add_items(ITEMS[2:4])
    tenant_store.sessions.archive("s", keep=Keep(messages=2))
    assert await session.get_items() == ITEMS[2:4]


plain = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system", "developer"]), "content": stored_texts}
)


@given(st.lists(plain, max_size=5))
def test_any_text_comes_back(items: list[dict[str, Any]]) -> None:
    assert [item for message in from_items(items) for item in to_items(message)] == items


async def test_a_run_of_the_sdk_keeps_its_history(tmp_path: Path) -> None:
    def said(text: str) -> ResponseOutputMessage:
        content = [ResponseOutputText(type="output_text", text=text, annotations=[], logprobs=[])]
        return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=content)  # type: ignore[arg-type]

    model = ScriptedModel()
    agent = Agent(name="helper", model=model)
    with Store.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        for question, answer in (("What city?", "Oslo."), ("Which country?", "Norway.")):
            model.enqueue([said(answer)])
            config = RunConfig(tracing_disabled=True)
            result = await Runner.run(agent, question, session=CtxkitSession("s", store), run_config=config)
            assert result.final_output == answer
        texts = [message.text for message in store.sessions.messages("s")]
        assert texts == ["What city?", "Oslo.", "Which country?", "Norway."]
        assert len(model.calls[-1].input) == 3


@pytest.mark.parametrize("call", [["x"], {"a": 1}, 5])
def test_an_item_whose_call_id_is_no_text_does_not_spoil_the_session(call: object) -> None:
    items: list[Any] = [{"type": "function_call", "call_id": call, "name": "f"}, {"role": "user", "content": "Hello."}]
    with Store.open("sqlite://") as store:
        session = CtxkitSession("odd", store)
        asyncio.run(session.add_items(items))
        assert asyncio.run(session.get_items()) == items
        assert asyncio.run(CtxkitSession("odd", store, whole=True).get_items(2)) == items


@pytest.mark.parametrize(
    "item", [{"role": "user", "content": 5}, {"summary": 5}, {"type": "f_output", "call_id": "c", "output": b"x"}]
)
def test_an_item_that_cannot_be_kept_is_said(item: dict[str, Any]) -> None:
    with pytest.raises(HistoryError, match="cannot be kept"):
        from_items([item])
