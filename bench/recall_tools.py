"""A synthetic transcript of a coding agent for the recall benchmark: long tool results and questions about details.

A seeded generator creates over 200,000 tokens in the format of LoCoMo's files. The data is about no real person.
"""

import random
from collections.abc import Callable
from typing import Any

ROUNDS = 120
#: Approximate characters of a tool result: 120 of them are over 200,000 tokens.
RESULT = 7_200
_PARTS = (
    "billing", "retry", "session", "search", "upload", "export", "cache", "login", "audit", "webhook", "invoice",
    "quota", "mailer", "avatar", "report", "locale", "tenant", "metrics", "backup", "router",
)  # fmt: skip
_KINDS = ("client", "store", "worker", "parser", "schema", "policy", "queue", "loader")
_VERBS = ("load", "merge", "flush", "resolve", "encode", "refresh", "collect", "validate")
_REMARKS = (
    ("Leave {part}/{kind}.py as it is, the {team} team rewrites it next month.",
     "Which team is going to rewrite the {part} {kind}?", "Why must nobody change the {part} {kind} for now?"),
    ("The {part} {kind} has to answer within {number} ms, that is in the contract.",
     "Within how many ms must the {part} {kind} answer?", "How fast is the {part} {kind} obliged to be?"),
    ("Call the new flag {flag}, not what you had, for the {part} {kind}.",
     "How is the new flag of the {part} {kind} called?", "What name did I want for the switch of the {part} {kind}?"),
    ("Please squash before you merge the {part} {kind}, {person} reviews it.",
     "Who reviews the {part} {kind}?", "Who has to approve the changes to the {part} {kind}?"),
)  # fmt: skip
_TEAMS = ("platform", "payments", "growth", "data", "mobile")
_PEOPLE = ("Ruth", "Bogdan", "Aiko", "Samir", "Elif", "Jonas")


def tools(seed: int = 11, *, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Return one conversation of `rounds` rounds in sessions of six: request, call, long result, remark."""
    dice = random.Random(seed)  # noqa: S311 - every run needs the same data
    places = [(part, kind) for part in _PARTS for kind in _KINDS]
    dice.shuffle(places)
    talk: dict[str, Any] = {"speaker_a": "user", "speaker_b": "assistant"}
    asked: list[dict[str, Any]] = []
    for number in range(rounds):
        session, (part, kind) = number // 6 + 1, places[number]
        turns = talk.setdefault(f"session_{session}", [])
        talk[f"session_{session}_date_time"] = f"9:{10 + session % 40} am on {1 + session} May, 2024"
        make = _RESULTS[number % len(_RESULTS)]
        _say(turns, session, "user", f"Look at the {part} {kind}, something is off there.")
        _say(turns, session, "assistant", f"I will check {part}/{kind}.py first.")
        text, question, answer = make(dice, part, kind)
        seen = _say(turns, session, "tool", text)
        asked.append({"question": question, "answer": answer, "evidence": [seen], "category": 4})
        _say(
            turns,
            session,
            "assistant",
            f"The output for {part} is clear to me now; I have a fix in mind and will go on.",
        )
        if number % 2:
            said, plain, other = dice.choice(_REMARKS)
            values = {
                "part": part, "kind": kind, "team": dice.choice(_TEAMS), "number": dice.randrange(20, 900),
                "flag": f"use_{dice.choice(_VERBS)}_{dice.randrange(10, 99)}", "person": dice.choice(_PEOPLE),
            }  # fmt: skip
            where = _say(turns, session, "user", said.format(**values))
            first = len(asked) % 4 < 2
            question = (plain if first else other).format(**values)
            asked.append(
                {
                    "question": question,
                    "answer": said.format(**values),
                    "evidence": [where],
                    "category": 1 if first else 3,
                }
            )
            _say(turns, session, "assistant", "Understood, I will keep to that.")
    return [{"sample_id": "tools", "conversation": talk, "qa": asked}]


def _say(turns: list[dict[str, str]], session: int, speaker: str, text: str) -> str:
    turns.append({"speaker": speaker, "dia_id": f"D{session}:{len(turns) + 1}", "text": text})
    return turns[-1]["dia_id"]


# ---- tool output: each text contains one line that a question asks for ----------------------------------------------


def _filled(dice: random.Random, line: Callable[[], str], hidden: str) -> str:
    lines = []
    while sum(map(len, lines)) < RESULT:
        lines.append(line())
    lines.insert(dice.randrange(len(lines) // 4, len(lines)), hidden)
    return "\n".join(lines)


def _name(dice: random.Random) -> str:
    return f"{dice.choice(_PARTS)}_{dice.choice(_KINDS)}"


def _pytest(dice: random.Random, part: str, kind: str) -> tuple[str, str, str]:
    def line() -> str:
        test = f"test_{_name(dice)}_{dice.randrange(99)}"
        return f"tests/{_name(dice)}/test_{dice.choice(_VERBS)}.py::{test} PASSED [{dice.randrange(99)}%]"

    want, got = dice.randrange(1000), dice.randrange(1000)
    hidden = (
        f"FAILED tests/{part}/test_{kind}.py::test_{part}_{kind}_rounds - AssertionError: expected {want}, got {got}"
    )
    return _filled(dice, line, hidden), f"Which value did the failing test of the {part} {kind} get?", str(got)


def _log(dice: random.Random, part: str, kind: str) -> tuple[str, str, str]:
    def line() -> str:
        clock = f"{dice.randrange(24):02}:{dice.randrange(60):02}:{dice.randrange(60):02}"
        did = f"{_name(dice)} {dice.choice(_VERBS)} took {dice.randrange(1, 400)} ms"
        return f"2024-05-02T{clock}Z INFO {did} request={dice.getrandbits(48):012x}"

    code = f"E{dice.randrange(1000, 9999)}"
    hidden = f"2024-05-02T03:14:15Z ERROR {part}_{kind} connection refused by upstream, giving up with code {code}"
    return _filled(dice, line, hidden), f"With which error code did the {part} {kind} give up in the log?", code


def _grep(dice: random.Random, part: str, kind: str) -> tuple[str, str, str]:
    def line() -> str:
        call = f"{dice.choice(_VERBS)}_{_name(dice)}(self.{dice.choice(_KINDS)}, {dice.randrange(99)})"
        return f"src/{_name(dice)}.py:{dice.randrange(900)}:    return {call}"

    port = dice.randrange(2000, 9999)
    hidden = f"deploy/staging/{part}-{kind}.yaml:12:  port: {port}  # {part} {kind} listens here"
    return _filled(dice, line, hidden), f"On which port does the {part} {kind} listen on staging?", str(port)


def _json(dice: random.Random, part: str, kind: str) -> tuple[str, str, str]:
    def line() -> str:
        state = dice.choice(("open", "done", "held"))
        return f'  {{"id": {dice.randrange(10**6)}, "name": "{_name(dice)}", "state": "{state}"}},'

    owner = dice.choice(_PEOPLE)
    hidden = f'  {{"id": 77, "name": "{part}_{kind}", "state": "blocked", "owner": "{owner}"}},'
    return _filled(dice, line, hidden), f"Who owns the blocked ticket of the {part} {kind}?", owner


_RESULTS = (_pytest, _log, _grep, _json)
