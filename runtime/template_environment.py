"""Jinja as chat templates need it: transformers' filters, globals and tags, in a sandbox that is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from .messages import Fields
from .template_bounds import Meters, TemplateLimitError, add, check_format, modulo, multiply, power
from .template_filters import check_method, filters, globals_

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jinja2.parser import Parser
    from jinja2.runtime import Context

NodeKind = TypeVar("NodeKind", bound=nodes.Node)

MOST_NODES = 2**14
"""Of a template's syntax tree: compiling takes as long."""
# Names that no template can spell.
_ADD, _CONCAT, _MADE, _STEP = ("add of texts", "concat of texts", "value made", "step taken")
_METHODS_OF_DICT = frozenset(dir(dict))
_TEXTS = {str}
_CONSTANT_COMPARISONS = ("eq", "ne", "lt", "lteq", "gt", "gteq")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Renders what it compiled under a meter of its own for each thread; see `running` of `meters`."""

    intercepted_binops = frozenset(("*", "**", "%"))  # + is faster in one call for a chain

    def __init__(self) -> None:
        """With everything that a chat template may use."""
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
        self.meters = Meters()
        self.finalize = self._finalize
        self.filters = filters(self.meters) | {
            _ADD: self._add,
            _CONCAT: self._concat_texts,
            _MADE: self._made,
            _STEP: self._step,
        }
        for name in ("lipsum", "dict"):
            del self.globals[name]
        self.globals.update(globals_(self.meters), namespace=_PlainNamespace)
        self.concat = self._concat  # type: ignore[method-assign]  # what Jinja joins every block's pieces with

    def compile_template(self, source: str) -> tuple[jinja2.Template, frozenset[str]]:
        """The template, and the names that its text mentions."""
        with self.meters.running(len(source)):
            tree = self.parse(source)
            if sum(1 for _ in tree.find_all(nodes.Node)) > MOST_NODES:
                raise TemplateLimitError(f"it has more than {MOST_NODES} expressions and statements")
            names = frozenset(name.name for name in tree.find_all(nodes.Name))
            code = self.compile(_Bounding(self).visit(tree))
            return jinja2.Template.from_code(self, code, self.make_globals(None)), names

    def call(self, context: Context, function: Any, *arguments: Any, **options: Any) -> Any:
        """Any call in a template."""
        meter = self.meters.meter()
        check_method(meter, function, arguments)
        result = super().call(context, function, *arguments, **options)
        meter.weigh(result)
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Of the operators that can make much out of little."""
        del context
        meter = self.meters.meter()
        if operator == "*":
            return multiply(meter, left, right)
        return power(left, right) if operator == "**" else modulo(meter, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """The sandbox's ``str.format``, bounded."""
        function = super().wrap_str_format(value)
        if function is None:
            return None

        def bounded(*arguments: Any, **options: Any) -> str:
            check_format(self.meters.meter(), str(value.__self__), [*arguments, dict(options)])
            return function(*arguments, **options)

        return bounded

    def getattr(self, obj: Any, attribute: str) -> Any:
        """``message.role``, which is a key sooner than an attribute."""
        if type(obj) is Fields and attribute in obj and attribute not in _METHODS_OF_DICT:
            return obj[attribute]
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """``message["role"]``."""
        if type(obj) is Fields and argument in obj:
            return obj[argument]
        return super().getitem(obj, argument)

    def _finalize(self, value: Any) -> Any:
        """What an expression's value is shown as."""
        if type(value) is str:
            return value
        text = value if isinstance(value, str) else str(value)
        meter = self.meters.meter()
        meter.allow(len(text))
        return text

    def _concat(self, pieces: Iterable[str]) -> str:
        texts = list(pieces)
        self.meters.meter().allow(sum(map(len, texts)))
        return "".join(texts)

    def _add(self, values: tuple[Any, ...]) -> Any:
        meter = self.meters.meter()
        if set(map(type, values)) == _TEXTS:
            meter.allow(sum(map(len, values)))
            return "".join(values)
        result = values[0]
        for value in values[1:]:
            result = add(meter, result, value)
        return result

    def _concat_texts(self, values: tuple[Any, ...]) -> str:
        return self._concat([str(value) for value in values])

    def _made(self, value: Any) -> Any:
        self.meters.meter().weigh(value)
        return value

    def _step(self, value: Any) -> Any:
        self.meters.meter()
        return value


class _Bounding(NodeTransformer):
    """Puts a call of the meter where a template repeats itself or makes a value."""

    def __init__(self, environment: jinja2.Environment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 - as Jinja names the visitors
        self.generic_visit(node)
        node.body = [self._of(nodes.ExprStmt(self._filtered(nodes.Const(None), _STEP))), *node.body]
        return node

    def visit_Add(self, node: nodes.Add) -> nodes.Node:  # noqa: N802
        terms: list[nodes.Expr] = []
        left: nodes.Expr = node
        while isinstance(left, nodes.Add):
            terms.append(left.right)
            left = left.left
        terms.append(left)
        return self._joined([self.visit(term) for term in reversed(terms)], _ADD)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        return self._joined([self.visit(term) for term in node.nodes], _CONCAT)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        """Comparisons of two values that may both be large, and searches, take a step."""
        self.generic_visit(node)
        if any(
            operand.op not in _CONSTANT_COMPARISONS or not isinstance(operand.expr, nodes.Const) for operand in node.ops
        ):
            node.expr = self._filtered(node.expr, _STEP)
        return node

    def visit_List(self, node: nodes.List) -> nodes.Node:  # noqa: N802
        return self._if_made(node, node.items)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:  # noqa: N802
        return self._if_made(node, [part for pair in node.items for part in (pair.key, pair.value)])

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:  # noqa: N802
        return self._if_made(node, node.items) if node.ctx == "load" else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return self._filtered(node, _MADE) if isinstance(node.arg, nodes.Slice) else node

    def _if_made(self, node: nodes.Literal, parts: list[nodes.Expr]) -> nodes.Node:
        self.generic_visit(node)
        return node if all(isinstance(part, nodes.Const) for part in parts) else self._filtered(node, _MADE)

    def _joined(self, terms: list[nodes.Expr], name: str) -> nodes.Filter:
        return self._filtered(self._of(nodes.Tuple(terms, "load")), name)

    def _filtered(self, node: nodes.Expr, name: str) -> nodes.Filter:
        return self._of(nodes.Filter(node, name, [], [], None, None))

    def _of(self, node: NodeKind) -> NodeKind:
        """A node that was made here, as one that the parser made."""
        node.set_environment(self._environment)
        node.set_lineno(1)
        return node


class _Generation(Extension):
    """``{% generation %}`` marks what the assistant said; for rendering it is a scope like any other."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _PlainNamespace(Namespace):
    """A namespace whose attributes are names, not doors to Python's own, and which shows nothing of itself."""

    def __init__(*arguments: Any, **attributes: Any) -> None:
        self, *rest = arguments
        for name in (content := dict(*rest, **attributes)):
            _check_name(name)
        Namespace.__init__(self, content)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        return "<Namespace>"


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace may not have an attribute {name!r}")
