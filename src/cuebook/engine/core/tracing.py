"""OpenTelemetry spans of turns, model calls, memory operations and background jobs, by the GenAI conventions.

Without a tracer, a span does nothing. Spans contain no content unless the setting `traces.content` asks for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from cuebook.records.turn import Usage
from cuebook.wire.chat_messages import MessageContent

Kind = Literal["INTERNAL", "SERVER", "CLIENT"]
#: The memory operations of the conventions that Cuebook has.
MemoryOperation = Literal["search_memory", "upsert_memory", "update_memory", "delete_memory"]
#: Attributes with content.
_CONTENT: Final = ("gen_ai.memory.query.text", "gen_ai.input.messages", "gen_ai.output.messages")


class Span:
    """A span that ends once. Without a tracer it has no effect."""

    def __init__(self, span: Any = None, *, content: bool = False) -> None:
        self._span, self._content = span, content

    def set(self, **values: Any) -> None:
        """Set attributes. In their names, `__` stands for a dot; None and unwanted content are left out."""
        if self._span is not None:
            self._span.set_attributes(_attributes(values, content=self._content))

    def rename(self, name: str) -> None:
        """Change the name, if it is known only at the end."""
        if self._span is not None:
            self._span.update_name(name)

    def fail(self, kind: str) -> None:
        """Mark the span as failed by a kind of error. Its message may have content and is left out."""
        if self._span is not None:
            from opentelemetry.trace import StatusCode

            self._span.set_attribute("error.type", kind)
            self._span.set_status(StatusCode.ERROR)

    def end(self) -> None:
        """End the span."""
        span, self._span = self._span, None
        if span is not None:
            span.end()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make spans that start meanwhile its children."""
        if self._span is None:
            yield
            return
        from opentelemetry.trace import use_span

        with use_span(self._span, record_exception=False, set_status_on_exception=False):
            yield


class Tracing:
    """Starts spans."""

    def __init__(self, tracer: Any = None, *, provider: Any = None, content: bool = False) -> None:
        """Trace with a tracer, None for not at all. `provider` is one to shut down at the end."""
        self._tracer, self._provider, self.content = tracer, provider, content

    @property
    def is_on(self) -> bool:
        """Return whether spans are recorded."""
        return self._tracer is not None

    def start(
        self,
        name: str,
        *,
        kind: Kind = "INTERNAL",
        parent: Span | None = None,
        carrier: Mapping[str, str] | None = None,
        **values: Any,
    ) -> Span:
        """Start a span below `parent`, the caller's span in HTTP headers (`carrier`), or the current one."""
        if self._tracer is None:
            return Span()
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, set_span_in_context

        context = None if carrier is None else extract(carrier)
        if parent is not None and parent._span is not None:  # noqa: SLF001  # an instance of this module
            context = set_span_in_context(parent._span)  # noqa: SLF001
        attributes = _attributes(values, content=self.content)
        made = self._tracer.start_span(name, context=context, kind=SpanKind[kind], attributes=attributes)
        return Span(made, content=self.content)

    @contextmanager
    def span(self, name: str, **options: Any) -> Iterator[Span]:
        """Trace a block, and make spans that start in it its children."""
        with _ended(self.start(name, **options)) as span:
            yield span

    def memory(self, operation: MemoryOperation, *, store: str, **values: Any) -> AbstractContextManager[Span]:
        """Trace an operation on the memories of an owner."""
        names = {"gen_ai__operation__name": operation, "gen_ai__memory__store__id": store}
        return self.span(operation, **names, **values)

    def call(self, model: str, *, conversation: str = "") -> AbstractContextManager[Span]:
        """Trace a block with a call of a model."""
        return _ended(self.model_call(model, "", conversation=conversation))

    def model_call(
        self,
        model: str,
        url: str,
        *,
        provider: str = "",
        conversation: str = "",
        parent: Span | None = None,
        **values: Any,
    ) -> Span:
        """Start the span of a call of a model at a URL."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        return self.start(
            f"chat {model}" if model else "chat",
            kind="CLIENT",
            parent=parent,
            gen_ai__operation__name="chat",
            gen_ai__provider__name=provider or "openai",
            gen_ai__request__model=model or None,
            gen_ai__conversation__id=conversation or None,
            server__address=host,
            server__port=port or ({"https": 443, "http": 80}.get(parts.scheme) if host else None),
            **values,
        )

    def close(self) -> None:
        """Export what is left. Blocks."""
        if self._provider is not None:
            self._provider.shutdown()


@contextmanager
def _ended(span: Span) -> Iterator[Span]:
    """Make a span the current one in a block, and end it with the block."""
    with ended(span), span.current():
        yield span


@contextmanager
def ended(span: Span) -> Iterator[None]:
    """End a span with a block, as failed if the block raises."""
    try:
        yield
    except BaseException as error:
        span.fail(type(error).__name__)
        raise
    finally:
        span.end()


def usage_values(usage: Usage | None) -> dict[str, Any]:
    """Return the attributes of a provider's token counts."""
    if usage is None:
        return {}
    return {
        "gen_ai__usage__input_tokens": usage.input,
        "gen_ai__usage__output_tokens": usage.output,
        "gen_ai__usage__cache_read__input_tokens": usage.cache_read,
        "gen_ai__usage__cache_creation__input_tokens": usage.cache_write,
    }


def message_list(messages: Sequence[MessageContent]) -> str:
    """Return the texts of messages in the conventions' JSON form."""
    return msgspec.json.encode(
        [{"role": each.role, "parts": [{"type": "text", "content": each.message}]} for each in messages]
    ).decode()


def _attributes(values: Mapping[str, Any], *, content: bool) -> dict[str, Any]:
    named = {name.replace("__", "."): value for name, value in values.items() if value is not None}
    return {name: value for name, value in named.items() if content or name not in _CONTENT}
