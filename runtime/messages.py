"""A conversation's messages: checked, and in a form that knows which of their fields a template read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pilotfish.bindings import InvalidArgumentError

from .option_checks import check_encodable, check_sequence, shown

if TYPE_CHECKING:
    from collections.abc import ItemsView, Iterator, ValuesView

Message = Mapping[str, Any]

MOST_DEPTH = 48
MOST_VALUES = 1_000_000
_THOUGHTS_IN_ORDER = ("reasoning_content", "thinking", "reasoning")
_THOUGHTS = frozenset(_THOUGHTS_IN_ORDER)
# What names another message and tells the model nothing: most templates go by the order of calls and answers.
_LINKS = {"tool": ("tool_call_id", "name"), "function": ("name",)}


class Fields(dict[str, Any]):
    """A mapping that notes which of its fields were read."""

    __slots__ = ("names_read", "weight")

    def __init__(self, content: Mapping[str, Any], weight: int = 1) -> None:
        """A copy. ``weight`` is how much text there is in it."""
        super().__init__(content)
        self.names_read: set[str] = set()
        self.weight = weight

    def __getitem__(self, name: str) -> Any:
        self.names_read.add(name)
        return dict.__getitem__(self, name)

    def __iter__(self) -> Iterator[str]:  # without it dict(fields) would read past the others
        return super().__iter__()

    def get(self, name: str, default: Any = None) -> Any:
        """As dict's."""
        self.names_read.add(name)
        return dict.get(self, name, default)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # a view of the same kind
        """As dict's."""
        self.names_read.update(self)
        return super().items()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """As dict's."""
        self.names_read.update(self)
        return super().values()


def check_messages(messages: Sequence[Message]) -> list[int]:
    """How long each is, in characters and values.

    Raises:
        InvalidArgumentError: there is none, or one of them has not the form that chat() documents; its index is named.
    """
    check_sequence("messages", messages, 'mappings such as {"role": "user", "content": "hi"}')
    if not len(messages):
        raise InvalidArgumentError("messages is empty, must hold at least one")
    return [_check_message(index, entry) for index, entry in enumerate(messages)]


def prepared(
    messages: Sequence[Message], lengths: Sequence[int], *, joins_parts: bool, keeps_none: bool
) -> list[Fields]:
    """Copies of checked messages as a template gets them.

    What the model thought before its answer has every name that templates know it by. ``joins_parts`` makes one text of
    content that is a list of parts; without ``keeps_none`` an assistant that only calls tools says the empty text.
    """
    return [
        _prepared(entry, length, joins_parts=joins_parts, keeps_none=keeps_none)
        for entry, length in zip(messages, lengths, strict=True)
    ]


def has_parts(messages: Sequence[Message]) -> bool:
    """Whether the content of one is a list of parts."""
    return any(isinstance(entry.get("content"), (list, tuple)) for entry in messages)


def has_none(messages: Sequence[Message]) -> bool:
    """Whether one has no content, as an assistant's that only calls tools."""
    return any(entry.get("content") is None for entry in messages)


def read_all_parts(rendered: Sequence[Fields]) -> bool:
    """Whether the template took the text of every part."""
    contents = [dict.get(fields, "content") for fields in rendered]
    return all("text" in part.names_read for content in contents if isinstance(content, list) for part in content)


def check_all_read(messages: Sequence[Message], rendered: Sequence[Fields]) -> None:
    """Refuse what would be lost: a field that says something and that the template did not read.

    Raises:
        InvalidArgumentError: the message's index, the field, and what to do.
    """
    for index, (entry, fields) in enumerate(zip(messages, rendered, strict=True)):
        if not (unread := entry.keys() - fields.names_read):
            continue
        # Templates leave out on purpose what the model thought before an earlier answer.
        unread -= {"role", *_THOUGHTS, *_LINKS.get(entry["role"], ())}
        for name in sorted(unread):
            if not _says_nothing(entry[name]):
                raise InvalidArgumentError(_lost(index, name, entry["role"]))


def check_values(name: str, value: object) -> int:
    """How many characters and values something nested has.

    Raises:
        InvalidArgumentError: it is nested too deep, too large, or has a text that is none.
    """
    total = num_values = 0
    rest = [(value, 0)]
    while rest:
        item, depth = rest.pop()
        num_values += 1
        if depth > MOST_DEPTH:
            raise InvalidArgumentError(f"{name} is nested deeper than {MOST_DEPTH} levels")
        if num_values > MOST_VALUES:
            raise InvalidArgumentError(f"{name} has more than {MOST_VALUES} values")
        if isinstance(item, str):
            check_encodable(f"a text of {name}" if depth else name, item)
            total += len(item)
        elif isinstance(item, Mapping):
            rest += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, (list, tuple)):
            rest += [(part, depth + 1) for part in item]
    return total + num_values


def _check_message(index: int, entry: Message) -> int:
    if not isinstance(entry, Mapping):
        raise InvalidArgumentError(f"message {index} is {shown(entry)}, must be a mapping with role and content")
    if "role" not in entry or not ("content" in entry or "tool_calls" in entry):
        raise InvalidArgumentError(f"message {index} has keys {sorted(map(str, entry))}, must have role and content")
    for name in entry:
        if not isinstance(name, str):
            raise InvalidArgumentError(f"message {index} has the key {shown(name)}, must have texts as keys")
    if not isinstance(entry["role"], str):
        raise InvalidArgumentError(
            f"message {index} has the role {shown(entry['role'])}, must be a text such as 'user'"
        )
    _check_content(index, entry.get("content"), calls_tools=bool(entry.get("tool_calls")))
    length = 1
    for name, value in entry.items():
        if isinstance(value, str) and value.isascii():
            length += len(value)
        else:
            length += check_values(f"{name} of message {index}", value)
    return length


def _check_content(index: int, content: object, *, calls_tools: bool) -> None:
    if isinstance(content, str) or (content is None and calls_tools):
        return
    if not isinstance(content, (list, tuple)):
        raise InvalidArgumentError(
            f"content of message {index} is {shown(content)}, must be a text, or a list of text parts; None only "
            "beside tool_calls"
        )
    for number, part in enumerate(content):
        is_mapping = isinstance(part, Mapping)
        if not is_mapping or part.get("type") != "text" or not isinstance(part.get("text"), str):
            kind = f"of type {shown(part.get('type'))}" if is_mapping else f"{shown(part)}"
            raise InvalidArgumentError(
                f'part {number} of message {index} is {kind}, must be {{"type": "text", "text": "..."}}'
            )
        if unknown := set(part) - {"type", "text"}:
            raise InvalidArgumentError(
                f"part {number} of message {index} has {sorted(map(str, unknown))} beside its text"
            )


def _prepared(entry: Message, length: int, *, joins_parts: bool, keeps_none: bool) -> Fields:
    message = dict(entry)
    if not _THOUGHTS.isdisjoint(message):
        thoughts = next((message[name] for name in _THOUGHTS_IN_ORDER if message.get(name) is not None), None)
        message = {"thinking": thoughts, **message, "reasoning_content": thoughts}
    content = message.get("content")
    if isinstance(content, (list, tuple)):
        message["content"] = (
            "".join(part["text"] for part in content) if joins_parts else [Fields(part) for part in content]
        )
    elif content is None and not keeps_none:
        message["content"] = ""
    return Fields(message, length)


def _says_nothing(value: object) -> bool:
    return value is None or (isinstance(value, (str, list, tuple, Mapping)) and not len(value))


def _lost(index: int, name: str, role: str) -> str:
    where = f"message {index} ({role})"
    if name == "content":
        return f"the bundle's chat template leaves out the content of {where}: put it into a message of another role"
    what = "tell the model in its content, or use a model that was made for tools" if "tool" in name else "leave it out"
    return f"{where} has {name}, which the bundle's chat template does not read: {what}"
