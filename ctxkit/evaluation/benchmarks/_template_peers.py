"""Renders cases with other template libraries; a script for their own environment, without ctxkit.

Reads a JSON list of cases from standard input, each `{"messages": [[role, [part, …]], …], "payload": {…}}` where a part
is `["text", …]` or `["slot", …]`, and writes for each peer a list of `{"messages": [[role, text], …]}`,
`{"error": …}` or null, where the peer's language cannot write the case down. A case may have a `history`, a text that a
user wrote in an earlier turn, and a message of role `history` for its place.
"""

import asyncio
import contextlib
import io
import json
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

Messages = list[tuple[str, list[tuple[str, str]]]]
Rendered = list[tuple[str, str]]


def written(parts: list[tuple[str, str]], language: str) -> str | None:
    """The parts in a peer's language; None where a literal text cannot be written in it."""
    text = []
    for kind, value in parts:
        if kind == "slot":
            text.append(f"{{{value}}}" if language == "format" else f"{{{{{value}}}}}")
        elif language == "format":
            text.append(value.replace("{", "{{").replace("}", "}}"))
        elif "{" in value or "}" in value:
            return None
        else:
            text.append(value)
    return "".join(text)


def str_format(messages: list[tuple[str, str]], payload: dict[str, Any]) -> Rendered:
    return [(role, text.format(**payload)) for role, text in messages]


def jinja(messages: list[tuple[str, str]], payload: dict[str, Any]) -> Rendered:
    import jinja2

    environment = jinja2.Environment(keep_trailing_newline=True)  # noqa: S701
    return [(role, environment.from_string(text).render(payload)) for role, text in messages]


def jinja_sandbox(messages: list[tuple[str, str]], payload: dict[str, Any]) -> Rendered:
    from jinja2.sandbox import SandboxedEnvironment

    environment = SandboxedEnvironment(keep_trailing_newline=True)
    return [(role, environment.from_string(text).render(payload)) for role, text in messages]


def langchain(template_format: Any) -> Callable[[list[tuple[str, str]], dict[str, Any]], Rendered]:
    def render(messages: list[tuple[str, str]], payload: dict[str, Any]) -> Rendered:
        from langchain_core.prompts import ChatPromptTemplate

        names = {"system": "system", "human": "user", "ai": "assistant"}
        back = {role: name for name, role in names.items()}
        template = ChatPromptTemplate.from_messages(
            [(back[role], text) for role, text in messages], template_format=template_format
        )
        return [(names[message.type], str(message.content)) for message in template.format_messages(**payload)]

    return render


def langfuse(messages: list[tuple[str, str]], payload: dict[str, Any]) -> Rendered:
    from langfuse.api import Prompt_Chat
    from langfuse.model import ChatPromptClient

    prompt = Prompt_Chat(
        type="chat",
        name="p",
        version=1,
        config={},
        labels=[],
        tags=[],
        prompt=[{"role": role, "content": text} for role, text in messages],
    )
    return [(message["role"], message["content"]) for message in ChatPromptClient(prompt).compile(**payload)]


def mlflow(messages: list[tuple[str, str]], payload: dict[str, Any]) -> Rendered:
    from mlflow.entities.model_registry import PromptVersion

    prompt = PromptVersion(name="p", version=1, template=[{"role": role, "content": text} for role, text in messages])
    return [(message["role"], message["content"]) for message in prompt.format(**payload)]


def dotprompt(messages: list[tuple[str, str]], payload: dict[str, Any]) -> Rendered:
    from dotpromptz.dotprompt import Dotprompt
    from dotpromptz.typing import DataArgument

    names = {"assistant": "model"}
    source = "".join(f'{{{{role "{names.get(role, role)}"}}}}{text}' for role, text in messages)
    rendered = asyncio.run(Dotprompt().render(source, DataArgument(input=payload)))
    found = []
    for message in rendered.messages:
        role = str(getattr(message.role, "value", message.role))
        text = "".join(getattr(part, "text", None) or f"[{type(part).__name__}]" for part in message.content)
        found.append(("assistant" if role == "model" else role, text))
    return found


PEERS: dict[str, tuple[str, str, Callable[[list[tuple[str, str]], dict[str, Any]], Rendered]]] = {
    "str.format": ("", "format", str_format),
    "jinja2": ("jinja2", "braces", jinja),
    "jinja2 sandboxed": ("jinja2", "braces", jinja_sandbox),
    "langchain f-string": ("langchain-core", "format", langchain("f-string")),
    "langchain mustache": ("langchain-core", "braces", langchain("mustache")),
    "langchain jinja2": ("langchain-core", "braces", langchain("jinja2")),
    "langfuse": ("langfuse", "braces", langfuse),
    "mlflow": ("mlflow-skinny", "braces", mlflow),
    "dotprompt": ("dotpromptz", "braces", dotprompt),
}
"""By name: the distribution, how slots are written, and what renders."""


def langchain_history(messages: list[tuple[str, str]], payload: dict[str, Any], past: str) -> Rendered:
    from langchain_core.messages import HumanMessage
    from langchain_core.prompts import ChatPromptTemplate

    names = {"system": "system", "user": "human", "history": "placeholder"}
    template = ChatPromptTemplate.from_messages(
        [(names[role], "{history}" if role == "history" else text) for role, text in messages]
    )
    rendered = template.format_messages(**payload, history=[HumanMessage(past)])
    return [(message.type, str(message.content)) for message in rendered]


def langfuse_history(messages: list[tuple[str, str]], payload: dict[str, Any], past: str) -> Rendered:
    from langfuse.api import Prompt_Chat
    from langfuse.model import ChatPromptClient

    prompt: list[dict[str, str]] = [
        {"type": "placeholder", "name": "history"} if role == "history" else {"role": role, "content": text}
        for role, text in messages
    ]
    chat = Prompt_Chat(type="chat", name="p", version=1, config={}, labels=[], tags=[], prompt=prompt)
    compiled = ChatPromptClient(chat).compile(**payload, history=[{"role": "user", "content": past}])
    return [(message["role"], message["content"]) for message in compiled]


def dotprompt_history(messages: list[tuple[str, str]], payload: dict[str, Any], past: str) -> Rendered:
    from dotpromptz.dotprompt import Dotprompt
    from dotpromptz.typing import DataArgument, Message, Role, TextPart

    source = "".join("{{history}}" if role == "history" else f'{{{{role "{role}"}}}}{text}' for role, text in messages)
    data = DataArgument(input=payload, messages=[Message(role=Role.USER, content=[TextPart(text=past)])])
    rendered = asyncio.run(Dotprompt().render(source, data))
    return [
        (str(message.role), "".join(getattr(part, "text", "") for part in message.content))
        for message in rendered.messages
    ]


WITH_HISTORY: dict[str, Callable[[list[tuple[str, str]], dict[str, Any], str], Rendered]] = {
    "langchain f-string": langchain_history,
    "langfuse": langfuse_history,
    "dotprompt": dotprompt_history,
}


def main() -> None:
    warnings.simplefilter("ignore")
    cases = json.load(sys.stdin)
    answer: dict[str, Any] = {}
    for name, (distribution, language, render) in PEERS.items():
        results: list[Any] = []
        for case in cases:
            if "history" in case and name not in WITH_HISTORY:
                results.append(None)
                continue
            messages = [(role, written(parts, language)) for role, parts in case["messages"]]
            if any(text is None for _, text in messages):
                results.append(None)
                continue
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    texts = [(role, text or "") for role, text in messages]
                    if "history" in case:
                        results.append({"messages": WITH_HISTORY[name](texts, case["payload"], case["history"])})
                    else:
                        results.append({"messages": render(texts, case["payload"])})
            except Exception as error:
                results.append({"error": f"{type(error).__name__}: {str(error)[:200]}"})
        label = f"{name} {version(distribution)}" if distribution else name
        answer[label] = results
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
