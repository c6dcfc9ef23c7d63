"""The LangChain adapter, by LangChain's own standard tests where they exist."""

from __future__ import annotations

import pytest

from ctxkit import ContextEngine, Document
from ctxkit.chunking import RecursiveChunker
from ctxkit.compression import SentenceCompressor
from ctxkit.errors import ConfigError
from ctxkit.storage import Store

pytest.importorskip("langchain_tests")

from langchain_core.documents import Document as LangChainDocument
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_tests.integration_tests import RetrieversIntegrationTests

from ctxkit_adapters.langchain import (
    CtxkitChatMessageHistory,
    CtxkitDocumentCompressor,
    CtxkitRetriever,
    CtxkitTextSplitter,
)

NOTES = [
    "Keys rotate every month. The old key stays valid for a day.",
    "To rotate a key, run the rotate command and restart the service.",
    "Budgets are counted in tokens of the target model.",
    "A key that leaked must be rotated at once.",
    "Bananas grow in warm places.",
]


def open_engine() -> ContextEngine:
    engine = ContextEngine.open("sqlite://", embedder="hash")
    engine.ingest_documents(Document.from_text(text, source=f"note-{n}.md") for n, text in enumerate(NOTES))
    return engine


class TestRetrieverStandard(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[CtxkitRetriever]:
        return CtxkitRetriever

    @property
    def retriever_constructor_params(self) -> dict:
        return {"engine": open_engine(), "k": 2}

    @property
    def retriever_query_example(self) -> str:
        return "how do I rotate a key"


def test_retrieved_documents_say_where_they_stand() -> None:
    engine = open_engine()
    for document in CtxkitRetriever(engine=engine, k=3).invoke("rotate a key"):
        source = document.metadata["source"]
        text = NOTES[int(source.split("-")[1].split(".")[0])]
        assert text[document.metadata["start"] : document.metadata["end"]] == document.page_content
        assert 0 <= document.metadata["score"] <= 1


def test_an_unknown_option_is_refused() -> None:
    with pytest.raises(ConfigError, match="top_k"):
        CtxkitRetriever(engine=open_engine()).invoke("rotate", None, top_k=3)


@pytest.mark.parametrize("k", [0, -1, "3", 1.5])
def test_a_wrong_k_is_refused_and_none_is_the_default(k: object) -> None:
    retriever = CtxkitRetriever(engine=open_engine(), k=2)
    with pytest.raises(ConfigError):
        retriever.invoke("rotate", None, k=k)
    assert len(retriever.invoke("rotate", None, k=None)) == 2
    assert len(retriever.invoke("rotate", None, k=1)) == 1


def test_the_splitter_refuses_what_is_no_text() -> None:
    splitter = CtxkitTextSplitter()
    for texts, metadatas in ((["a"], [{}, {}]), (["a", "b"], [{}]), (["a"], []), ([None], None), ([b"a"], [{}])):
        with pytest.raises(ConfigError) as caught:
            splitter.create_documents(texts, metadatas)
        assert caught.value.remedy
    with pytest.raises(ConfigError):
        splitter.split_text(None)
    assert [document.page_content for document in splitter.create_documents(["a"], [{"n": 1}])] == ["a"]
    assert splitter.create_documents([]) == []


def test_the_splitter_gives_true_offsets_in_repetitive_text() -> None:
    text = "chunk chunk chunk. " * 60
    splitter = CtxkitTextSplitter(RecursiveChunker(max_tokens=16))
    documents = splitter.split_documents([LangChainDocument(page_content=text, metadata={"source": "a.txt", "n": 1})])
    assert len(documents) > 10
    position = 0
    for document in documents:
        start, end = document.metadata["start_index"], document.metadata["end"]
        assert text[start:end] == document.page_content
        assert start >= position
        position = end
        assert document.metadata["n"] == 1
    assert " ".join(splitter.split_text(text)).split() == text.split()


def test_the_compressor_keeps_sentences_and_says_which() -> None:
    text = "Bananas are yellow. Keys rotate every month. Apples are red. The sky is blue today."
    compressor = CtxkitDocumentCompressor(stages=[SentenceCompressor(ratio=2)])
    (kept,) = compressor.compress_documents([LangChainDocument(page_content=text, id="x")], "when do keys rotate")
    assert "Keys rotate every month." in kept.page_content
    assert "The sky is blue" not in kept.page_content
    assert any("Keys rotate" in text[start:end] for start, end in kept.metadata["kept"])
    assert kept.id == "x"


def test_a_history_keeps_tool_calls_and_order(store: Store) -> None:
    history = CtxkitChatMessageHistory(store, "alice")
    call = {"id": "c1", "name": "look_up", "args": {"key": "a"}, "type": "tool_call"}
    history.add_messages(
        [
            SystemMessage("Be brief."),
            HumanMessage("What is a?"),
            AIMessage("", tool_calls=[call]),
            ToolMessage("42", tool_call_id="c1"),
            AIMessage("It is 42."),
        ]
    )
    messages = CtxkitChatMessageHistory(store, "alice").messages
    assert [message.type for message in messages] == ["system", "human", "ai", "tool", "ai"]
    assert messages[2].tool_calls[0]["args"] == {"key": "a"}
    assert messages[3].tool_call_id == "c1"
    history.add_user_message("Thanks.")
    assert [message.content for message in history.messages][-1] == "Thanks."
    history.clear()
    assert history.messages == []


def test_adding_a_message_twice_changes_nothing(store: Store) -> None:
    history = CtxkitChatMessageHistory(store, "bob")
    message = HumanMessage("Hello", id="m1")
    history.add_messages([message])
    history.add_messages([message])
    assert len(history.messages) == 1


async def _ask_twice(history: CtxkitChatMessageHistory) -> list[str]:
    await history.aadd_messages([HumanMessage("one")])
    await history.aadd_messages([HumanMessage("two")])
    return [str(message.content) for message in await history.aget_messages()]


def test_async_twins(store: Store) -> None:
    import asyncio

    assert asyncio.run(_ask_twice(CtxkitChatMessageHistory(store, "carol"))) == ["one", "two"]


MESSAGES = [
    SystemMessage("Be brief."),
    HumanMessage("Hello", id="m1", name="ada"),
    HumanMessage([{"type": "text", "text": "See:"}, {"type": "image_url", "image_url": {"url": "https://a.b/c.png"}}]),
    AIMessage(
        "",
        id="run-1",
        tool_calls=[{"id": "c1", "name": "look_up", "args": {"key": "a"}, "type": "tool_call"}],
        usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
        response_metadata={"model_name": "gpt-4o", "finish_reason": "tool_calls"},
    ),
    ToolMessage("42", tool_call_id="c1", name="look_up", status="error", artifact={"rows": [1, 2]}),
    AIMessage("", invalid_tool_calls=[{"id": "c", "name": "f", "args": "{", "error": "", "type": "invalid_tool_call"}]),
    AIMessage([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "yes"}], additional_kwargs={"x": 1}),
    ToolMessage("nobody asked", tool_call_id="none"),
    HumanMessage(""),
]  # fmt: skip


def test_messages_come_back_as_they_came(store: Store) -> None:
    history = CtxkitChatMessageHistory(store, "dora")
    history.add_messages(MESSAGES)
    back = history.messages
    assert [message.id for message in back] == [message.id or f"dora:{at}" for at, message in enumerate(MESSAGES, 1)]
    for ours, theirs in zip(back, MESSAGES, strict=True):
        assert ours.model_copy(update={"id": theirs.id}) == theirs
    assert [message.role for message in store.sessions.messages("dora")][3:5] == ["assistant", "tool"]
    history.add_messages(back)
    assert len(history.messages) == len(MESSAGES), "what was read is known by its id"


def test_a_role_that_there_is_not_is_refused_and_nothing_is_stored(tenant_store: Store) -> None:
    from langchain_core.messages import ChatMessage, FunctionMessage, RemoveMessage

    history = CtxkitChatMessageHistory(tenant_store, "s")
    for wrong in (ChatMessage("x", role="critic"), FunctionMessage("x", name="f"), RemoveMessage("m1")):
        with pytest.raises(ConfigError) as caught:
            history.add_messages([HumanMessage("first"), wrong])
        assert caught.value.remedy
    assert history.messages == []


@pytest.mark.parametrize("wrong", [None, "hello", {"role": "user", "content": "x"}])
def test_what_is_no_message_is_refused(wrong: object) -> None:
    from ctxkit.storage import Store

    with Store.open("sqlite://") as store, pytest.raises(ConfigError):
        CtxkitChatMessageHistory(store, "s").add_messages([wrong])  # type: ignore[list-item]
