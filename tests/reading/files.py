"""Small real files of each format, made by the libraries that make them, and folders of files."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path

from ctxkit.reading import Failed, Skipped


def pdf(pages: list[str], *, title: str = "", password: str = "") -> bytes:
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfgen.canvas import Canvas

    buffer = io.BytesIO()
    canvas = Canvas(buffer, encrypt=StandardEncryption(password) if password else None)
    if title:
        canvas.setTitle(title)
    for page in pages:
        for line, text in enumerate(page.split("\n")):
            canvas.drawString(72, 720 - 16 * line, text)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def docx(title: str = "Handbook", *, body: str = "Rotate the key monthly.") -> bytes:
    from docx import Document

    document = Document()
    document.add_heading(title, level=1)
    document.add_paragraph(body)
    document.add_heading("Steps", level=2)
    for step in ("open the vault", "make a key"):
        document.add_paragraph(step, style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    for row, cells in enumerate((("name", "days"), ("signing", "30"))):
        for column, cell in enumerate(cells):
            table.cell(row, column).text = cell
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


HTML = """<!DOCTYPE html><html><head><title>The  key
page</title><style>p { color: red }</style><script>alert("x")</script></head><body>
<h1>Keys</h1><p>Rotate the <b>signing</b> key, see <a href="https://example.org/x">the guide</a>.</p>
<h2>Steps</h2><ul><li>open the vault</li><li>make a key<ul><li>nested</li></ul></li></ul>
<table><tr><th>name</th><th>days</th></tr><tr><td>signing</td><td>30</td></tr></table>
<pre><code class="language-python">def f():
    return 1
</code></pre><noscript>no script</noscript><p>a * b _c_ &lt;tag&gt; &amp; 1 &lt; 2</p></body></html>
"""


def make(root: Path, contents: dict[str, str | bytes]) -> Path:
    for name, content in contents.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def found(items: Iterable[Path | Skipped | Failed], root: Path) -> list[str]:
    return [item.relative_to(root).as_posix() for item in items if isinstance(item, Path)]
