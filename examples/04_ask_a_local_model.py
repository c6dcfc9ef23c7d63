"""Ask a model on this machine; the answer comes with its sources, and the model is fed exactly what was counted."""

from pathlib import Path

from ctxkit import Budget, CompletionOptions, ContextEngine, Document, Template

# SmolLM2-135M-Instruct is small enough for any machine; it follows a template of one line.
TEMPLATE = Template.parse(Path(__file__).with_name("answer.template").read_text("utf-8"))

NOTES = {
    "rotation.md": "The signing key rotates on the first day of each month. The old key stays valid for seven days.",
    "vault.md": "The vault holds every key. Two people must agree before a key leaves it.",
}


def main() -> None:
    with ContextEngine.open("sqlite://") as engine:
        engine.ingest_documents(Document.from_text(text, source=source) for source, text in NOTES.items())
        answer = engine.ask(
            "On which day does the signing key rotate?",
            model="local",
            template=TEMPLATE,
            budget=Budget(1_024, reserve_output=64),
            options=CompletionOptions(max_tokens=64),
        )
        print(answer.text)
        for citation in answer.citations:
            print(f"[{citation.number}] {citation.source.source}: {citation.text}")
        usage = answer.completion.usage
        print(f"{usage.prompt_tokens} tokens of 960 allowed, {usage.completion_tokens} answered")
        assert usage.prompt_tokens == answer.prompt.token_count <= 960
        assert any(citation.source.source == "rotation.md" for citation in answer.citations)


if __name__ == "__main__":
    main()
