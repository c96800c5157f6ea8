"""Memory of Hermes in a Cuebook server. `cuebook hermes install` writes this file to the plugins of Hermes.

It needs only Hermes and Python's library, because Hermes pins versions of packages that Cuebook needs newer.
"""

import hashlib
import json
import os
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agent.memory_provider import MemoryProvider

#: The file with the settings, in Hermes' home.
SETTINGS = "cuebook.json"
#: The environment variable of the API key.
KEY = "CUEBOOK_API_KEY"
#: Seconds that a call may take. Hermes waits for recalled text before it asks the model.
PATIENCE_S = 5
#: Recalled results in a prompt, and their least share of the best one's score.
MOST, SHARE = 8, 0.3
ROLES = ("user", "assistant", "tool")
TOOLS: list[dict[str, Any]] = [
    {
        "name": "cuebook_search",
        "description": "Search all earlier conversations and memories of the user, also those that were compressed.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "A question or keywords."}},
            "required": ["query"],
        },
    },
    {
        "name": "cuebook_remember",
        "description": "Store a fact about the user for later conversations, as a self-contained sentence.",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    },
]


class CuebookProvider(MemoryProvider):
    """Stores each turn, recalls before each turn, and stores whole transcripts before Hermes compresses them."""

    pre_compress_checkpoint_api_version = 2

    def __init__(self) -> None:
        self._settings: dict[str, str] = {}
        self._session, self._user, self._writes = "", "", True
        self._sent: set[str] = set()

    @property
    def name(self) -> str:
        return "cuebook"

    def is_available(self) -> bool:
        return (_home() / SETTINGS).is_file()

    def unavailable_reason(self) -> str:
        return f"{_home() / SETTINGS} is missing. Run `cuebook hermes install`."

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        home = Path(kwargs.get("hermes_home") or _home())
        self._settings = json.loads((home / SETTINGS).read_text("utf-8"))
        self._session, self._sent = session_id, set()
        self._user = self._settings.get("user") or kwargs.get("user_id") or kwargs.get("agent_identity") or "hermes"
        self._writes = kwargs.get("agent_context", "primary") == "primary"  # not prompts of cron jobs and subagents

    def system_prompt_block(self) -> str:
        return "Cuebook stores all conversations. Use cuebook_search before you say that you do not know something."

    def prefetch(self, query: str, *, session_id: str = "") -> str:
        """Return earlier messages and memories that match the prompt, without those of this session."""
        own = self._conversation(session_id or self._session)
        hits = [each for each in self._search(query) if each.get("conversationId") != own]
        return "\n".join(map(_line, hits))

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: list[dict[str, Any]] | None = None,
    ) -> None:
        """Store a turn with its tool calls' results."""
        turn = [{"role": "user", "content": user_content}, {"role": "assistant", "content": assistant_content}]
        self._store(messages or turn, session_id or self._session)

    def on_pre_compress(self, messages: list[dict[str, Any]], *, require_checkpoint: bool = False) -> str:
        """Store all messages before Hermes replaces them with a summary.

        Raises OSError if they are not stored and Hermes requires it, so that it does not compress.
        """
        try:
            self._store(messages, self._session)
        except OSError:
            if require_checkpoint:
                raise
            return ""
        return "All messages so far are stored in Cuebook. cuebook_search finds them."

    def on_session_end(self, messages: list[dict[str, Any]]) -> None:
        self._store(messages, self._session)

    def on_session_switch(self, new_session_id: str, **_: Any) -> None:
        self._session, self._sent = new_session_id, set()

    def on_memory_write(
        self,
        action: str,
        target: str,  # noqa: ARG002  # Hermes' two files are one memory
        content: str,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Repeat a write of Hermes' own memory; an entry that it replaces or removes is deleted."""
        before = (metadata or {}).get("previous_content")
        if before and action in ("replace", "remove"):
            for each in self._call("GET", f"/api/memories?limit=1000&userId={quote(self._user, safe='')}")["items"]:
                if each["text"] == before:
                    self._call("DELETE", f"/api/memories/{quote(each['id'], safe='')}")
        if content and action in ("add", "replace"):
            self._remember(content)

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return TOOLS

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **_: Any) -> str:
        try:
            if tool_name == "cuebook_search":
                return json.dumps({"results": [_line(each) for each in self._search(str(args.get("query", "")))]})
            return json.dumps({"stored": self._remember(str(args.get("text", "")))["id"]})
        except (OSError, ValueError) as error:
            return json.dumps({"error": str(error)})

    def get_config_schema(self) -> list[dict[str, Any]]:
        return [
            {"key": "url", "description": "Cuebook server", "required": True, "default": "http://127.0.0.1:21200"},
            {"key": "user", "description": "Owner of the memories. Default: the user of the platform, or the profile"},
            {"key": "api_key", "description": "API key of the server", "secret": True, "env_var": KEY},
        ]

    def save_config(self, values: dict[str, Any], hermes_home: str) -> None:
        settings = {name: str(values[name]) for name in ("url", "user") if values.get(name)}
        (Path(hermes_home) / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", "utf-8")

    def _search(self, query: str) -> list[dict[str, Any]]:
        if not query.strip():
            return []
        asked = {"query": query, "userId": self._user, "limit": MOST, "minShare": SHARE}
        found: list[dict[str, Any]] = self._call("POST", "/api/memories/search", asked)["hits"]
        return found

    def _remember(self, text: str) -> dict[str, Any]:
        return self._call("POST", "/api/memories", {"text": text, "userId": self._user})

    def _store(self, messages: list[dict[str, Any]], session: str) -> None:
        """Store the messages that are not stored yet. Each has an id, so that a repeated call stores it once."""
        if not self._writes or not session:
            return
        count, new = Counter[tuple[str, str]](), []
        for each in messages:
            role, text = str(each.get("role")), _text(each.get("content"))
            if role not in ROLES or not text.strip():
                continue
            count[role, text] += 1
            source = json.dumps([session, role, text, count[role, text]])
            name = f"hermes-{hashlib.sha256(source.encode()).hexdigest()[:32]}"
            if name not in self._sent:
                new.append({"id": name, "role": role, "content": text})
        if new:
            path = f"/api/conversations/{quote(self._conversation(session), safe='')}/posts"
            self._call("POST", path, {"messages": new, "userId": self._user})
            self._sent.update(each["id"] for each in new)

    def _conversation(self, session: str) -> str:
        """Return the id of a session's conversation: users of a platform may have sessions of the same name."""
        return "/".join(["hermes", *(quote(each, safe="") for each in (self._user, session))])

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the answer of the server. Raises OSError, also for a refused request."""
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get(KEY):
            headers["X-Cuebook-Key"] = key
        url = self._settings["url"].rstrip("/") + path
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310  # the user's own setting
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:  # noqa: S310
            answer: dict[str, Any] = json.loads(response.read() or b"{}")
        return answer


def register(context: Any) -> None:
    """Register the provider. Hermes calls it."""
    context.register_memory_provider(CuebookProvider())


def _home() -> Path:
    return Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")


def _line(hit: dict[str, Any]) -> str:
    return f"[{hit.get('day', '')}] {hit.get('speaker') or hit['kind']}: {hit['text']}"


def _text(content: Any) -> str:
    """Return the text of a message's content."""
    parts = content if isinstance(content, list) else [content]
    texts = (each.get("text") if isinstance(each, dict) else each for each in parts)
    return "\n".join(each for each in texts if isinstance(each, str))
