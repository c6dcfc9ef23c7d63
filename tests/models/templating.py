"""Dialogues and chat templates that the tests of local models' counters share."""

from __future__ import annotations

from pathlib import Path

from ctxkit.messages import Message, Part, ToolCall
from ctxkit.models import ChatTemplateCounter
from ctxkit.models.chat_template import ChatTemplate, pieces

DIALOGUE = [
    Message("system", "Be brief."),
    Message("user", "What is 12 + 30?"),
    Message("assistant", "42"),
    Message("user", "And 这是?\n\nYes, 👍."),
]
CALL = ToolCall("call_1", "get_weather", '{"city": "Be<|im_end|>rn", "days": 3}')
CALLING = [
    *DIALOGUE,
    Message("assistant", "", tool_calls=(CALL,)),
    Message("tool", 'rain "today"\n', tool_call_id="call_1"),
    Message("assistant", "It rains."),
    Message("user", "Thanks"),
]

NATIVE_TOOLS = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content %}{{ message.content }}{% endif %}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def with_template(folder: Path, template: str, **options: object) -> ChatTemplateCounter:
    return ChatTemplateCounter(folder, chat_template=template, **options)  # type: ignore[arg-type]


def text_of(counter: ChatTemplateCounter, ids: list[int]) -> str:
    return str(counter.tokenizer._whole.decode(ids, skip_special_tokens=False))


def rendered(template: ChatTemplate, messages: list[Message], tools: list[dict[str, object]] | None = None) -> str:
    return "".join(text for text, _ in pieces(template.layout(messages, tools or [])))


def calling(*content: Part, arguments: str = "{}", result: str = "rain") -> list[Message]:
    call = ToolCall("call_1", "get_weather", arguments)
    return [
        Message("user", "And Bern?"),
        Message("assistant", content, tool_calls=(call,)),
        Message("tool", result, tool_call_id="call_1"),
    ]
