"""The filters and methods that chat templates have, each bounded in what it makes.

Jinja's others, which are for web pages, are left out: a template that uses one does not compile.
"""

from __future__ import annotations

import functools
import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
from jinja2 import pass_environment
from jinja2.filters import FILTERS, make_attrgetter

from .template_bounds import MOST_WIDTH, TemplateLimitError, modulo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .template_bounds import Meter, Meters

_PLAIN = (
    *("abs", "attr", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "groupby"),
    *("int", "items", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse"),
    *("safe", "select", "selectattr", "sort", "string", "title", "trim", "truncate", "unique", "upper", "wordcount"),
)
_METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        (
            *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isascii"),
            *("isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join", "lower"),
            *("lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rpartition"),
            *("rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper"),
        )
    ),
    dict: frozenset(("copy", "get", "items", "keys", "values")),
    list: frozenset(("copy", "count", "index")),
    tuple: frozenset(("count", "index")),
    int: frozenset(("bit_length",)),
    float: frozenset(("is_integer",)),
    bytes: frozenset(),
}
_MOST_FORMAT = 256
_PADDED_DATE = re.compile(r"%[^A-Za-z%]*\d")


def filters(meters: Meters) -> dict[str, Callable[..., Any]]:
    """All filters, by name."""
    own: dict[str, Callable[..., Any]] = {
        "center": _center,
        "format": _format,
        "indent": _indent,
        "replace": _replace,
        "round": _round,
        "tojson": _to_json,
    }
    bounded = {name: _bounded(meters, function) for name, function in own.items()}
    bounded |= {name: _bounded_reader(meters, function) for name, function in {"join": _join, "sum": _sum}.items()}
    return bounded | {name: _weighed(meters, FILTERS[name]) for name in _PLAIN}


def check_method(meter: Meter, function: Any, arguments: tuple[Any, ...]) -> None:
    """Refuse a builtin's method that no template needs, or that would make too much."""
    owner = getattr(function, "__self__", None)
    kind = next((kind for kind in type(owner).__mro__ if kind in _METHODS), None)
    if kind is None:
        return
    name = getattr(function, "__name__", "")
    if name not in _METHODS[kind]:
        raise TemplateLimitError(f"it calls {kind.__name__}.{name}, which chat templates have no use for")
    if name == "join" and arguments:
        _allow_join(meter, str(owner), arguments[0] if isinstance(arguments[0], (list, tuple)) else ())
    elif name == "replace" and len(arguments) > 1:
        _allow_replace(meter, str(owner), *map(str, arguments[:2]))


def raise_exception(message: str) -> NoReturn:
    """How a template refuses messages."""
    raise jinja2.TemplateError(message)


def strftime_now(template: str) -> str:
    """The date, as a template formats it."""
    if not isinstance(template, str) or len(template) > _MOST_FORMAT or _PADDED_DATE.search(template):
        raise TemplateLimitError(
            f"strftime_now has the format {template!r:.40}, must be at most {_MOST_FORMAT} characters"
        )
    return datetime.now().astimezone().strftime(template)


def _bounded(meters: Meters, function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: function(meters.meter(), *arguments, **options)


def _bounded_reader(meters: Meters, function: Callable[..., Any]) -> Callable[..., Any]:
    """Of a filter that reads attributes, which is the environment's business."""

    @pass_environment
    def call(environment: jinja2.Environment, *arguments: Any, **options: Any) -> Any:
        return function(meters.meter(), environment, *arguments, **options)

    return call


def _weighed(meters: Meters, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of Jinja's; functools.wraps keeps the mark of those that want the environment first."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        meter = meters.meter()
        result = function(*arguments, **options)
        meter.weigh(result)
        return result

    return call


def _format(meter: Meter, value: object, *arguments: Any, **options: Any) -> Any:
    if arguments and options:
        raise jinja2.exceptions.FilterArgumentError("can't handle positional and keyword arguments at the same time")
    return modulo(meter, str(value), options or arguments)


def _indent(meter: Meter, text: str, width: int | str = 4, first: bool = False, blank: bool = False) -> str:  # noqa: FBT001, FBT002 - Jinja's
    _check_width("indent", len(width) if isinstance(width, str) else width)
    meter.allow(len(text) + (text.count("\n") + 2) * MOST_WIDTH if len(str(text)) > MOST_WIDTH else 0)
    return str(FILTERS["indent"](text, width, first, blank))


def _center(meter: Meter, value: str, width: int = 80) -> str:
    _check_width("center", width)
    meter.allow(len(str(value)) + MOST_WIDTH)
    return str(FILTERS["center"](value, width))


def _join(
    meter: Meter, environment: jinja2.Environment, value: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> str:
    items = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    texts = [str(item) for item in items]
    _allow_join(meter, str(d), texts)
    return str(d).join(texts)


def _replace(meter: Meter, text: str, old: str, new: str, count: int | None = None) -> str:
    text, old, new = str(text), str(old), str(new)
    _allow_replace(meter, text, old, new)
    return text.replace(old, new, -1 if count is None else count)


def _round(meter: Meter, value: float, precision: int = 0, method: str = "common") -> Any:
    del meter  # a number
    _check_width("round", precision)
    return FILTERS["round"](value, precision, method)


def _sum(
    meter: Meter,
    environment: jinja2.Environment,
    iterable: Iterable[Any],
    attribute: str | int | None = None,
    start: float = 0,
) -> Any:
    values = [*iterable] if attribute is None else [*map(make_attrgetter(environment, attribute), iterable)]
    meter.allow(len(values))
    if not all(isinstance(value, (int, float)) for value in (*values, start)):
        raise TemplateLimitError("it sums what are no numbers")
    return sum(values, start)


def _to_json(  # noqa: PLR0917 - transformers' signature
    meter: Meter,
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - transformers' names and order
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Jinja's own filter escapes HTML, which a prompt must not."""
    if indent is not None:
        _check_width("tojson", indent)
    if separators is not None and not _are_separators(separators):
        raise TemplateLimitError(f"tojson has the separators {separators!r:.40}, must be two short texts")
    meter.weigh(value)
    encoder = json.JSONEncoder(
        ensure_ascii=bool(ensure_ascii), indent=indent, separators=separators, sort_keys=bool(sort_keys)
    )
    if indent is None:
        result = encoder.encode(value)
        meter.allow(len(result))
        return result
    pieces = []
    for piece in encoder.iterencode(value):
        meter.step()
        meter.allow(len(piece))
        pieces.append(piece)
    return "".join(pieces)


def _are_separators(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2  # noqa: PLR2004 - between items, and between key and value
        and all(isinstance(text, str) and len(text) <= MOST_WIDTH for text in value)
    )


def _check_width(name: str, width: Any) -> None:
    if not isinstance(width, int) or not -MOST_WIDTH <= width <= MOST_WIDTH:
        raise TemplateLimitError(f"{name} has the number {width!r:.20}, must be at most {MOST_WIDTH}")


def _allow_join(meter: Meter, separator: str, items: Iterable[Any]) -> None:
    lengths = [len(item) for item in items if isinstance(item, str)]
    meter.allow(sum(lengths) + len(separator) * len(lengths))


def _allow_replace(meter: Meter, text: str, old: str, new: str) -> None:
    meter.allow(len(text) + text.count(old) * max(0, len(new) - len(old)))


def globals_(meters: Meters) -> Mapping[str, Any]:
    """The functions that templates may call beside Jinja's range, namespace, cycler and joiner."""

    def mapping(*arguments: Any, **values: Any) -> dict[Any, Any]:
        result = dict(*arguments, **values)
        meters.meter().weigh(result)
        return result

    return {"raise_exception": raise_exception, "strftime_now": strftime_now, "dict": mapping}
