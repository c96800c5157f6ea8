"""Commands `cuebook memory analyze|stats|budget`: report relevance, memory counts and token use."""

from typing import Annotated

import typer

from cuebook.cli.group import Conversation, User, command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.expression import counted

app = new_app()

MaybeConversation = Annotated[
    str | None,
    typer.Argument(metavar="CONVERSATION", help="Conversation ID. Default: all conversations.", show_default=False),
]


@command(app, "cuebook memory analyze c1", "cuebook memory analyze c1 --json", name="analyze")
def analyze(state: State, conversation: Conversation, *, user: User = None) -> None:
    """Find relevant and redundant posts. Suggests actions and changes nothing."""
    with state.open() as cue:
        found = cue.memory.analyze(conversation, user=user)
    if state.json:
        screen.say_json(found)
        return
    screen.say(
        f"{counted(found.total_entries, 'post')}, {found.relevant_entries:,} relevant, "
        f"{found.redundant_entries:,} redundant; {found.token_usage:,} tokens after the summary"
    )
    if found.suggested_actions:
        rows = [(each.type, each.post_id, each.reason) for each in found.suggested_actions]
        screen.table(("action", "post", "reason"), rows)


@command(app, "cuebook memory stats", "cuebook memory stats c1", name="stats")
def stats(state: State, conversation: MaybeConversation = None, *, user: User = None) -> None:
    """Count posts, items and memories by tier."""
    with state.open() as cue:
        found = cue.memory.stats(conversation, user=user)
    if state.json:
        screen.say_json(found)
        return
    screen.table(
        ("tier", "count"),
        [
            ("short-term (posts)", f"{found.by_type.short_term:,}"),
            ("  of them summarized", f"{found.compressed:,}"),
            ("long-term (items)", f"{found.by_type.long_term:,}"),
            ("cross-session (memories)", f"{found.by_type.cross_session:,}"),
        ],
        right=("count",),
    )


@command(app, "cuebook memory budget", "cuebook memory budget c1 --json", name="budget")
def budget(state: State, conversation: MaybeConversation = None, *, user: User = None) -> None:
    """Show the token budget for posts and its use."""
    with state.open() as cue:
        found = cue.memory.budget(conversation, user=user)
    if state.json:
        screen.say_json(found)
        return
    share = min(1.0, found.usage_percent / 100)
    screen.say(
        f"{found.used:,} of {found.budget:,} tokens, {found.usage_percent:g}% {screen.bar(share)}".rstrip()
        + (" · summarization due" if found.should_compress else "")
    )
    screen.say(
        f"context {found.config.max_context_tokens:,} tokens, {found.config.response_reserve_tokens:,} reserved for "
        f"the reply and {found.config.system_prompt_tokens:,} for the system prompt; summarization starts at "
        f"{found.config.compression_trigger_ratio:.0%}; newest {found.config.full_message_window} posts kept verbatim"
    )
