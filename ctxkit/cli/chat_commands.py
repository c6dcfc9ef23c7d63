"""The slash commands of a chat."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ctxkit.cli.chat_turns import Conversation
from ctxkit.cli.chat_view import budget_line, turn_json
from ctxkit.errors import ConfigError
from ctxkit.messages import Message

__all__ = ["COMMANDS", "Outcome", "run_command"]

_NUMBER = re.compile("[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command does: a text for people, the same as values, a question to ask, or the end."""

    text: str = ""
    values: dict[str, Any] | None = None
    ask: str | None = None
    end: bool = False


def run_command(line: str, conversation: Conversation) -> Outcome:
    """Run `/name argument`. Raises `ConfigError` for one that there is not."""
    name, _, argument = line[1:].partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        listed = ", ".join(f"/{known}" for known in COMMANDS)
        raise ConfigError(
            "there is no such command", subject=f"/{name}", remedy=f"Use {listed}; //{name} says it to the model."
        )
    return command(conversation, argument.strip())


def _help(conversation: Conversation, argument: str) -> Outcome:
    """list the commands"""
    lines = [f"/{name:<9} {command.__doc__}" for name, command in COMMANDS.items()]
    text = "\n".join(
        [
            *lines,
            "//text     says /text to the model",
            '"""        begins and ends a message of several lines',
            "Ctrl-C     stops the answer; what came of it is kept",
            "Ctrl-D     ends",
        ]
    )
    return Outcome(text, {"commands": {name: command.__doc__ for name, command in COMMANDS.items()}})


def _budget(conversation: Conversation, argument: str) -> Outcome:
    """show where every token of the last prompt comes from"""
    turn = conversation.last
    if turn is None:
        return Outcome("nothing has been asked yet", {"turn": None})
    return Outcome(f"{turn.prompt.explain()}\n\n{budget_line(turn)}", {"turn": turn_json(turn, conversation.session)})


def _history(conversation: Conversation, argument: str) -> Outcome:
    """show the newest messages: /history, /history 50"""
    count = 10 if not argument else int(argument) if _NUMBER.fullmatch(argument) else 0
    if not count:
        raise ConfigError("not a number of messages", subject=argument, remedy="Write /history 20.")
    messages = conversation.engine.store.sessions.messages(conversation.session, last=count)
    return _listed(messages, "nothing has been said yet")


def _search(conversation: Conversation, argument: str) -> Outcome:
    """find messages of this session by words: /search rotate key"""
    found = conversation.engine.store.sessions.search(argument, session=conversation.session)
    return _listed([match.message for match in reversed(found)], "nothing found")


def _retry(conversation: Conversation, argument: str) -> Outcome:
    """take the last answer back, and ask again"""
    question = conversation.newest_question()
    if question is None:
        return Outcome("nothing has been asked yet", {"question": None})
    conversation.take_back(question=False)
    return Outcome(ask=question)


def _undo(conversation: Conversation, argument: str) -> Outcome:
    """take the last question and its answer back"""
    gone = conversation.take_back()
    text = f"taken back: {_line(gone[0])}" if gone else "nothing has been asked yet"
    return Outcome(text, {"taken_back": [_as_dict(message) for message in gone]})


def _exit(conversation: Conversation, argument: str) -> Outcome:
    """end"""
    return Outcome(end=True)


def _listed(messages: list[Message], nothing: str) -> Outcome:
    text = "\n".join(map(_line, messages)) or nothing
    return Outcome(text, {"messages": [_as_dict(message) for message in messages]})


def _line(message: Message) -> str:
    said = message.visible or ", ".join(f"{call.name}({call.arguments})" for call in message.tool_calls)
    return f"[{message.sequence}] {message.role}: {' '.join(said.split())[:200]}"


def _as_dict(message: Message) -> dict[str, Any]:
    return {"id": message.id, "sequence": message.sequence, **message.to_openai()}


COMMANDS: dict[str, Callable[[Conversation, str], Outcome]] = {
    "help": _help,
    "budget": _budget,
    "history": _history,
    "search": _search,
    "retry": _retry,
    "undo": _undo,
    "exit": _exit,
}
