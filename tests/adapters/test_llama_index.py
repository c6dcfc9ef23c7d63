"""The LlamaIndex memory and chat store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="the extra `llama-index` is not installed")

from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer

from ctxkit import Message
from ctxkit.errors import BudgetError, ConfigError, ProtectedError, StorageError
from ctxkit.history import Hysteresis, SemanticWindow, check_history
from ctxkit.models import get_chat_counter
from ctxkit.storage import Store
from ctxkit_adapters.llama_index import CtxkitChatStore, CtxkitMemory, from_llama, to_llama
from tests.strategies import stored_texts

CALL = {"id": "c2", "type": "function", "function": {"name": "gate", "arguments": '{"n":1}'}}
MESSAGES = [
    ChatMessage(role="system", content="Be brief."),
    ChatMessage(role="user", content="Which seat?"),
    ChatMessage(
        role="assistant",
        blocks=[
            ThinkingBlock(content="Look it up."),
            TextBlock(text="One moment."),
            ToolCallBlock(tool_call_id="c1", tool_name="seat", tool_kwargs={"row": 3}),
        ],
    ),
    ChatMessage(role="tool", content="3A", additional_kwargs={"tool_call_id": "c1", "name": "seat"}),
    ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [CALL]}),
    ChatMessage(role="function", content="B4", additional_kwargs={"tool_call_id": "c2"}),
    ChatMessage(role="model", content="3A, gate B4."),
    ChatMessage(role="developer", content="Be briefer."),
    ChatMessage(role="user", blocks=[TextBlock(text="See:"), ImageBlock(url="https://a.b/c.png", detail="low")]),
    ChatMessage(role="user", blocks=[AudioBlock(audio=b"abcd", format="wav")]),
    ChatMessage(role="assistant", blocks=[]),
]


def contents(messages: list[ChatMessage]) -> list[str | None]:
    return [message.content for message in messages]


def says(*texts: str) -> list[ChatMessage]:
    return [ChatMessage(role="user" if at % 2 == 0 else "assistant", content=text) for at, text in enumerate(texts)]


class TestMessages:
    @pytest.mark.parametrize("message", MESSAGES, ids=range(len(MESSAGES)))
    def test_they_come_back_as_they_came(self, message: ChatMessage, tenant_store: Store) -> None:
        assert to_llama(from_llama(message)) == message
        store = CtxkitChatStore(store=tenant_store)
        store.add_message("s", message)
        assert store.get_messages("s") == [message]

    def test_calls_of_both_forms_are_calls_of_ours(self) -> None:
        modern, legacy = from_llama(MESSAGES[2]), from_llama(MESSAGES[4])
        assert [
            (call.id, call.name, json.loads(call.arguments)) for call in (*modern.tool_calls, *legacy.tool_calls)
        ] == [
            ("c1", "seat", {"row": 3}),
            ("c2", "gate", {"n": 1}),
        ]
        check_history([from_llama(message) for message in MESSAGES[:7]])

    @given(st.sampled_from([role.value for role in MessageRole]), st.lists(stored_texts, max_size=3))
    def test_any_text_comes_back(self, role: str, texts: list[str]) -> None:
        message = ChatMessage(role=role, blocks=[TextBlock(text=text) for text in texts])
        assert to_llama(from_llama(message)) == message

    def test_what_is_no_message_is_refused(self) -> None:
        with pytest.raises(ConfigError):
            from_llama("hello")  # type: ignore[arg-type]


class TestChatStore:
    def test_a_dialogue_is_added_to_read_set_and_deleted(self, store: Store) -> None:
        chat = CtxkitChatStore(store=store)
        assert chat.get_messages("s") == [] and chat.get_keys() == []
        chat.set_messages("s", says("a", "b", "c"))
        chat.add_message("s", says("d")[0])
        chat.add_message("t", says("x")[0])
        assert contents(chat.get_messages("s")) == ["a", "b", "c", "d"]
        assert chat.get_keys() == ["s", "t"]
        chat.add_message("s", says("first")[0], idx=0)
        assert contents(chat.get_messages("s")) == ["first", "a", "b", "c", "d"]
        chat.set_messages("s", says("new"))
        assert contents(chat.get_messages("s")) == ["new"]
        assert contents(chat.delete_messages("s") or []) == ["new"]
        assert chat.delete_messages("s") is None
        assert chat.get_keys() == ["t"]

    @pytest.mark.parametrize(
        ("index", "gone", "left"),
        [
            (0, "a", "bc"),
            (1, "b", "ac"),
            (2, "c", "ab"),
            (-1, "c", "ab"),
            (-3, "a", "bc"),
            (3, None, "abc"),
            (-4, None, "abc"),
        ],
    )
    def test_one_message_is_deleted(self, tenant_store: Store, index: int, gone: str | None, left: str) -> None:
        chat = CtxkitChatStore(store=tenant_store)
        chat.set_messages("s", says("a", "b", "c"))
        deleted = chat.delete_message("s", index)
        assert (deleted.content if deleted else None) == gone
        assert contents(chat.get_messages("s")) == list(left)
        assert [message.sequence for message in tenant_store.sessions.messages("s")] == list(range(1, len(left) + 1))

    def test_the_last_message_is_deleted(self, tenant_store: Store) -> None:
        chat = CtxkitChatStore(store=tenant_store)
        assert chat.delete_last_message("s") is None
        chat.set_messages("s", says("a", "b"))
        assert [getattr(chat.delete_last_message("s"), "content", None) for _ in range(3)] == ["b", "a", None]

    def test_what_a_branch_shares_stays(self, tenant_store: Store) -> None:
        chat = CtxkitChatStore(store=tenant_store)
        chat.set_messages("s", says("a", "b"))
        tenant_store.sessions.branch("s", at=2)
        with pytest.raises(ProtectedError):
            chat.delete_message("s", 0)
        assert contents(chat.get_messages("s")) == ["a", "b"]

    async def test_async_twins_and_a_buffer_of_the_framework(self, tenant_store: Store) -> None:
        chat = CtxkitChatStore(store=tenant_store)
        await chat.aset_messages("s", says("a"))
        await chat.async_add_message("s", says("b")[0])
        assert contents(await chat.aget_messages("s")) == ["a", "b"]
        assert getattr(await chat.adelete_last_message("s"), "content", None) == "b"
        buffer = ChatMemoryBuffer.from_defaults(chat_store=chat, chat_store_key="s", token_limit=1_000)
        buffer.put(says("c")[0])
        assert contents(buffer.get()) == ["a", "c"]
        buffer.reset()
        assert await chat.aget_keys() == []


class TestMemory:
    def test_it_never_gives_more_than_its_limit_and_keeps_the_newest_user_message(self, tenant_store: Store) -> None:
        memory = CtxkitMemory(store=tenant_store, session_id="s", token_limit=90)
        assert memory.get() == []
        counter = get_chat_counter("openai:gpt-4o")
        for number in range(25):
            memory.put_messages(
                [
                    ChatMessage(role="user", content=f"Where is gate {number}?"),
                    ChatMessage(
                        role="assistant",
                        blocks=[ToolCallBlock(tool_call_id=f"c{number}", tool_name="gate", tool_kwargs={"n": number})],
                    ),
                ]
            )
            for _ in range(2):  # with the call unanswered, and answered
                given = memory.get()
                ours = [from_llama(message) for message in given]
                check_history(ours)
                assert counter.count_prompt(ours) <= 90
                assert f"Where is gate {number}?" in contents(given)
                answer = ChatMessage(
                    role="tool", content=f"B{number}", additional_kwargs={"tool_call_id": f"c{number}"}
                )
                memory.put(answer) if _ == 0 else None
        assert len(memory.get_all()) == 75

    def test_the_room_that_is_taken_already_is_left_free(self, tenant_store: Store) -> None:
        memory = CtxkitMemory.from_defaults(
            says(*map(str, range(40))), store=tenant_store, session_id="s", token_limit=200
        )
        assert len(memory.get(initial_token_count=150)) < len(memory.get())
        with pytest.raises(BudgetError):
            memory.get(initial_token_count=200)
        memory.put(ChatMessage(role="user", content="too long " * 500))
        with pytest.raises(BudgetError) as caught:
            memory.get()
        assert "newest user message" in str(caught.value)

    def test_the_question_is_handed_to_the_window(self, tenant_store: Store) -> None:
        history = says(*(f"I saw town {number} from seat {number}A" for number in range(40)))
        memory = CtxkitMemory.from_defaults(
            history, store=tenant_store, session_id="s", token_limit=120, window=SemanticWindow(recent=1)
        )
        assert any("seat 4A" in str(text) for text in contents(memory.get("Which seat in town 4?")))
        assert not any("seat 22A" in str(text) for text in contents(memory.get("Which seat in town 4?")))
        assert any("seat 22A" in str(text) for text in contents(memory.get("Which seat in town 22?")))

    async def test_set_reset_and_async_twins(self, tenant_store: Store) -> None:
        memory = CtxkitMemory(store=tenant_store, session_id="s", window=Hysteresis())
        await memory.aset(says("a", "b", "c"))
        await memory.aput(says("d")[0])
        await memory.aput_messages(says("e"))
        assert contents(await memory.aget_all()) == contents(await memory.aget("x")) == ["a", "b", "c", "d", "e"]
        await memory.areset()
        assert await memory.aget_all() == []

    @pytest.mark.parametrize("wrong", [{"token_limit": 0}, {"window": "tail"}, {"session_id": ""}])
    def test_wrong_parameters(self, tenant_store: Store, wrong: dict[str, Any]) -> None:
        with pytest.raises((ConfigError, StorageError)):
            CtxkitMemory(**{"store": tenant_store, "session_id": "s", **wrong})

    def test_a_chat_engine_of_the_framework_keeps_its_history(self, tmp_path: Path) -> None:
        with Store.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
            memory = CtxkitMemory(store=store, session_id="s", token_limit=500)
            engine = SimpleChatEngine.from_defaults(llm=MockLLM(max_tokens=4), memory=memory)
            engine.chat("How are you?")
            engine.chat("And your dog?")
            roles = [message.role for message in store.sessions.messages("s")]
            assert roles == ["user", "assistant"] * 2

    def test_a_session_of_ctxkit_is_read(self, tenant_store: Store) -> None:
        tenant_store.sessions.append("s", [Message("user", "a"), Message("assistant", "b")])
        assert CtxkitMemory(store=tenant_store, session_id="s").get() == says("a", "b")


@pytest.mark.parametrize("calls", [[5], "abc", [{"id": 5, "function": "f"}]])
def test_a_message_that_cannot_be_kept_is_said(calls: object) -> None:
    from ctxkit.errors import HistoryError

    with pytest.raises(HistoryError, match="cannot be kept"):
        from_llama(ChatMessage(role="assistant", additional_kwargs={"tool_calls": calls}))


USER = ChatMessage(role="user", content="Which seat?")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"store": "sqlite://"}, "store"),
        ({"session_id": 5}, "session_id"),
        ({"token_limit": "many"}, "token_limit"),
        ({"token_limt": 5}, "there is no token_limt"),
        ({"model": 5}, "model"),
        ({"chat_history": 5}, "the list of messages is a int"),
    ],
)
def test_wrong_parts_of_a_memory_are_said_in_our_errors(tenant_store: Store, parts: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        CtxkitMemory.from_defaults(**{"store": tenant_store, "session_id": "s", **parts})
    assert words in refused.value.message and refused.value.remedy
    with pytest.raises(ConfigError, match="store: Field required"):
        CtxkitChatStore()


def test_wrong_calls_are_said_in_our_errors(tenant_store: Store) -> None:
    memory, chats = CtxkitMemory(store=tenant_store, session_id="s"), CtxkitChatStore(store=tenant_store)
    none: Any = None
    place: Any = "0"
    memory.put(USER)
    for call in (
        lambda: memory.put_messages(none),
        lambda: memory.set(none),
        lambda: chats.set_messages("s", none),
        lambda: chats.add_message("s", USER, idx=place),
        lambda: chats.delete_message("s", place),
        lambda: chats.delete_message("s", none),
    ):
        with pytest.raises(ConfigError) as refused:
            call()
        assert refused.value.remedy
    assert memory.get_all() == [USER], "nothing was changed"
