"""The parts that ADK's sessions and memory share: names, and events as posts."""

from google.adk.events.event import Event
from google.genai import types

from cuebook.engine.core.drafts import Posted
from cuebook.integrations.connection import readable
from cuebook.records.conversation import Part, Role

#: The beginning of the names of conversations and of the places of documents.
FRAMEWORK = "google_adk"


def posted(event: Event, *parts: Part, name: str) -> Posted:
    """Return an event as a post: its text and the parts. Without parts, its author is the post's sender."""
    role: Role = "tool" if event.get_function_responses() else "user" if event.author == "user" else "assistant"
    return Posted(
        sender=role if parts else event.author or role,
        role=role,
        message=readable(text_of(event.content)),
        parts=parts,
        id=name,
        created_at=event.timestamp,
    )


def text_of(content: types.Content | None) -> str:
    """Return the texts of a content without the model's thoughts."""
    parts = (content.parts if content else None) or []
    return " ".join(part.text for part in parts if part.text and not part.thought)
