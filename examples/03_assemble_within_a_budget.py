"""One prompt from documents, a dialogue and a question, inside a budget; and where every token of it comes from."""

from ctxkit import Budget, BudgetError, ContextEngine, Document, Message, Section

NOTES = {
    "rotation.md": "Keys rotate on the first of each month. The old key stays valid for seven days. " * 12,
    "vault.md": "The vault holds every key. Two people must agree before a key leaves it. " * 12,
    "lunch.md": "Lunch is at noon. On Fridays there is cake. " * 12,
}


def main() -> None:
    with ContextEngine.open("sqlite://", embedder=None) as engine:
        engine.ingest_documents(Document.from_text(text, source=source) for source, text in NOTES.items())
        engine.store.sessions.append(
            "alice", [Message("user", "Who holds the keys?"), Message("assistant", "The vault does.")]
        )

        # The first budget has room for one of the two notes that bear on the question, the second for both.
        for size, dropped in ((540, ["vault.md"]), (1_200, [])):
            budget = Budget(size, reserve_output=100, sections={"context": Section(share=0.8)})
            prompt = engine.assemble(
                "When do keys rotate, and how long is the old key valid?", session="alice", budget=budget
            )
            print(prompt.explain(), end="\n\n")
            assert prompt.token_count <= budget.available
            packed = [segment for segment in prompt.segments if segment.section == "context" and segment.sources]
            assert packed[0].sources[0].source == "rotation.md"
            assert [item.sources[0].source for item in prompt.dropped] == dropped

        try:
            engine.assemble("When do keys rotate?", session="alice", budget=Budget(20))
        except BudgetError as error:
            print(f"with 20 tokens: {error}")
        else:
            raise SystemExit("a budget of 20 tokens cannot hold the mandatory parts")


if __name__ == "__main__":
    main()
