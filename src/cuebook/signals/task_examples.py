"""Classify a message's task by example embeddings, if no rule matches: the task with the nearest examples.

The mean of its example vectors stands for a task. Crisis and no-task examples only attract messages that belong to no
other task. Only rules report a crisis, because "the market is down" is close to an outage.
"""

from collections.abc import Mapping
from typing import Final

#: Parts of an embedder's `akin`: the minimum cosine with a task, and the minimum lead over every other task.
LEAST: Final = 0.6
AHEAD: Final = 0.2
#: Tasks that this method may report.
TOLD: Final = ("coding", "planning", "casual", "reflection")

EXAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "coding": (
        "Why does my code throw an exception?",
        "Write a function in Python that parses a file",
        "Refactor this class and add unit tests",
        "How do I fix this bug in my program?",
        "My web app's component renders twice",
        "How do I undo a commit in git?",
        "The SQL query on this table is slow",
        "Explain this loop over an array",
        "The compiler reports a type error",
        "Review my pull request",
    ),
    "planning": (
        "Make a plan for the next weeks",
        "Create a schedule with milestones and deadlines",
        "Which of these tasks should I do first?",
        "Help me organise my week",
        "Draft an agenda for the meeting",
        "Break this project down into steps",
        "Prepare a checklist for the trip",
        "How do I divide my time until the exam?",
    ),
    "casual": (
        "Hi, how are you today?",
        "haha that's funny",
        "What's your favourite movie?",
        "Good morning!",
        "I'm bored, tell me a joke",
        "What are you doing tonight?",
        "just chatting, it was a long day",
    ),
    "crisis": (
        "Our production system is down right now",
        "The deadline is in ten minutes and nothing works",
        "I want to end my life",
        "Someone collapsed and is not breathing",
        "We are being hacked at this moment",
        "There is a fire in the building, help",
        "I am in danger and need help immediately",
        "All customer data was just lost",
    ),
    "reflection": (
        "Looking back, what could I have done better?",
        "I wonder whether I chose the right path in life",
        "What really matters to me?",
        "I regret how I treated my friend",
        "What did I learn about myself this year?",
        "Why do I always react like that?",
        "I feel torn about my decision",
    ),
    "": (
        "What is the capital of Peru?",
        "How do I cook rice?",
        "Translate this sentence into German",
        "Where is my parcel?",
        "I want a refund for my order",
        "Explain how volcanoes work",
        "Who wrote this novel?",
        "How much does a ticket cost?",
        "Write a poem about the sea",
        "Summarise this article",
        "What does this word mean?",
        "Recommend a restaurant",
        "My phone battery is empty",
        "Which medicine helps against a cold?",
        "How old is the universe?",
    ),
}


def nearest(cosines: Mapping[str, float], *, akin: float) -> str:
    """Return the task nearest to a message, by its cosines with the examples of each; "" if none stands out."""
    first, second = sorted(cosines, key=lambda task: cosines[task], reverse=True)[:2]
    clear = cosines[first] >= LEAST * akin and cosines[first] - cosines[second] >= AHEAD * akin
    return first if clear and first in TOLD else ""
