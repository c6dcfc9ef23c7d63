"""Cut a text into chunks that lose nothing, each with its tokens, its headings and its place."""

from ctxkit import Document
from ctxkit.chunking import RecursiveChunker

TEXT = """# Keys

## Rotation

Keys rotate on the first of each month. The old key stays valid for a week, so that running jobs can finish.

## Storage

Keys are kept in the vault. 密钥保存在保险库中。没有人能读出它们。

```python
vault.rotate("signing", grace_days=7)
```
"""


def main() -> None:
    document = Document.from_text(TEXT, source="keys.md", title="Keys")
    chunks = list(RecursiveChunker(max_tokens=40).chunk(document))
    for chunk in chunks:
        print(
            f"{chunk.span.start:>4}-{chunk.span.end:<4} {chunk.token_count:>3} tokens  {' > '.join(chunk.heading_path)}"
        )
        print(f"          {chunk.text.strip().splitlines()[0][:70]}")
        assert chunk.text == document.text[chunk.span.start : chunk.span.end]
        assert chunk.token_count <= 40
    print(f"{len(chunks)} chunks, {sum(chunk.token_count for chunk in chunks)} tokens")


if __name__ == "__main__":
    main()
