"""Command `cuebook chat`: chat in a terminal, or line by line through a pipe."""

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from cuebook.app.blocking.cuebook import BlockingCuebook
from cuebook.app.setup.project_files import modes_of
from cuebook.cli.group import Project, TimeZone, command, new_app
from cuebook.cli.output import screen
from cuebook.cli.output.window import draw
from cuebook.cli.state import State
from cuebook.errors import CuebookError, InvalidInput, NotFound
from cuebook.records.answer import as_answer, to_wire
from cuebook.records.conversation_answers import ChatAnswer, window_entry
from cuebook.records.expression import counted
from cuebook.records.turn import Ask, Window

app = new_app()

HELP = "/show prints the last prompt, /help this line; /quit exits; Ctrl-C stops an answer"
#: A chat command; a path such as /etc/hosts does not match.
_COMMAND = re.compile(r"/([A-Za-z][\w-]*)(?=\s|$)")


@command(
    app, "cuebook chat", "cuebook chat --conversation c1 --user ann", 'echo "Where did we leave off?" | cuebook chat'
)
def chat(
    state: State,
    *,
    conversation: Annotated[
        str, typer.Option("--conversation", metavar="ID", help="Conversation to start or continue.")
    ] = "chat",
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Your user ID.")] = None,
    persona: Annotated[str | None, typer.Option("--persona", metavar="ID", help="Persona that answers.")] = None,
    mode: Annotated[str | None, typer.Option("--mode", metavar="MODE", help="Mode that selects the presets.")] = None,
    project: Project = None,
    time_zone: TimeZone = None,
) -> None:
    """Chat from the terminal. The next run continues the same conversation, however long it is.

    In a pipe, each input line is a message. Commands: /show, /help, /quit. To send /x as a message, type //x.
    """
    ask = Ask("", conversation, user=user, persona=persona, mode=mode, project=project, time_zone=time_zone)
    with state.open(worker=True) as cue:
        if mode is not None:
            _check_mode(cue, mode)
        chat_session = _ChatSession(cue, ask, json=state.json)
        try:
            if screen.on_terminal() and not state.json:
                _greet(cue, ask)
                _converse(chat_session, _typed(user or "you"))
            else:
                for line in sys.stdin:
                    if not chat_session.hear(line):
                        break
        finally:
            with contextlib.suppress(CuebookError):  # a later command retries it
                cue.memory.take_up(conversation)


def _check_mode(cue: BlockingCuebook, mode: str) -> None:
    """Raise InvalidInput if no preset has this mode."""
    modes = modes_of(cue.config)
    if not any(each in mode for each in modes):
        file = cue.config.settings.memory.presets
        known = ", ".join(sorted(modes)) or "none"
        msg = f"Unknown mode {mode!r} in {file}. Available: {known}."
        raise InvalidInput(msg, where="mode")


def _greet(cue: BlockingCuebook, ask: Ask) -> None:
    model = cue.check()["model"]
    try:
        known = counted(cue.conversations.get(ask.conversation, user=ask.user).last_seq, "post")
    except NotFound:
        known = "new"
    who = ask.persona or cue.config.settings.persona.default or "assistant"
    screen.heading(f"{ask.conversation} ({known}) · {who} · {model}")
    screen.say(HELP)


def _typed(prompt: str) -> Iterator[str]:
    with contextlib.suppress(ImportError):  # line editing and history, if Python supports it
        import readline  # noqa: F401
    while True:
        try:
            yield input(f"\n{screen.line_of(prompt)}> ")
        except EOFError:
            screen.say()
            return


def _converse(talk: "_ChatSession", lines: Iterator[str]) -> None:
    """Process lines, and continue after an error or a stopped answer."""
    for line in lines:
        try:
            if not talk.hear(line):
                return
        except CuebookError as error:
            screen.say()
            screen.complain(str(error))
        except KeyboardInterrupt:
            screen.say("\n(stopped; the partial answer is stored)")


class _ChatSession:
    """A chat session: commands, messages and answers."""

    def __init__(self, cue: BlockingCuebook, ask: Ask, *, json: bool) -> None:
        self._cue = cue
        self._ask = ask
        self._json = json
        self._window: Window | None = None

    def hear(self, line: str) -> bool:
        """Process a line: a command or a message. Return False to exit."""
        text = line.strip()
        if text == "/quit":
            return False
        if text == "/help":
            screen.say(HELP)
        elif text == "/show":
            self._show()
        elif asked := _COMMAND.match(text):
            msg = f"Unknown command {asked[0]}. Available: /show, /help, /quit. Type //{asked[1]} to send it as text."
            raise InvalidInput(msg, where="message")
        elif text:
            self._say(text.removeprefix("/") if text.startswith("//") else text)
        return True

    def _say(self, text: str) -> None:
        if self._json:
            self._answer_json(text)
        else:
            self._answer(text)

    def _answer(self, text: str) -> None:
        for chunk in self._cue.stream(msgspec.structs.replace(self._ask, text=text)):
            self._window = chunk.window or self._window
            if chunk.type == "text_delta":
                screen.say(chunk.text, end="")
        screen.say()

    def _answer_json(self, text: str) -> None:
        reply = self._cue.ask(msgspec.structs.replace(self._ask, text=text))
        self._window = reply.window
        screen.say_json(as_answer(ChatAnswer, reply), compact=True)

    def _show(self) -> None:
        if self._window is None:
            screen.say("no prompt yet. Send a message first.")
        elif self._json:
            screen.say_json(to_wire(window_entry(self._window)), compact=True)
        else:
            draw(to_wire(window_entry(self._window)))
