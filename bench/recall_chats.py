"""Synthetic chats for the recall benchmark: long answers, and facts that a question asks for much later.

The data is about no real person: a seeded generator combines names, places and texts in the format of LoCoMo's files.
"""

import random
from collections.abc import Iterator
from typing import Any

SESSIONS = 48
_NAMES = (
    "Mara Ilse Tobias Priya Kwame Lena Yusuf Greta Anselm Noor Felix Ines Radek Sunita Oskar Thea Malik Vera".split()
)
_PETS = (("dog", "Biscuit"), ("cat", "Pepper"), ("parrot", "Admiral"), ("tortoise", "Quickly"), ("rabbit", "Clover"))
_TOWNS = "Aldermoor Brackwater Cresthaven Dunmere Eastvale Fennick Garrow Hollin Inverleaf Jarrowby".split()
_DISHES = ("lentil soup", "plum cake", "mushroom risotto", "sourdough bread", "fish stew", "pumpkin curry")
_TOOLS = ("a cordless drill", "a sewing machine", "a telescope", "a kayak", "an espresso machine", "a banjo")
_JOBS = (
    ("nurse", "hospital"),
    ("carpenter", "workshop"),
    ("teacher", "school"),
    ("pilot", "airline"),
    ("baker", "shop"),
)
_SPORTS = ("climbing", "fencing", "rowing", "badminton", "judo", "swimming")
_ILLS = (("peanuts", "nuts"), ("shellfish", "seafood"), ("penicillin", "antibiotics"), ("pollen", "flowers"))
_RELATIONS = ("sister", "brother", "neighbour", "colleague", "cousin", "aunt", "flatmate", "old friend")

#: A user's fact, a question in its words, and a question in other words. Each is used with new names.
_FACTS = (
    ("My {relation} {name} got a {pet}, it is called {petname}", "What is {name}'s {pet} called?",
     "Which name did they give the animal that lives at {name}'s place?"),
    ("{name}, my {relation}, moved to {town} last week", "Where did {name} move to?",
     "In which place does {name} live nowadays?"),
    ("By the way I bought {tool} at the market for {number} euros", "How much did I pay for {tool}?",
     "What was the price of {tool}?"),
    ("{name} is a {job} now, she started at the {site} in {town}", "What is {name}'s job?",
     "How does {name} earn a living these days?"),
    ("I can't eat anything with {ill}, keep that in mind when you suggest food to {name} and me",
     "What can't I eat when I dine with {name}?", "Which allergy should a cook for {name} and me watch out for?"),
    ("We booked the cabin near {town} for {number} nights with {name}",
     "How many nights did we book the cabin with {name}?",
     "How long is our holiday in the hut with {name} going to last?"),
    ("{name} taught me her {dish} recipe and it was wonderful",
     "Whose {dish} recipe did I learn, and was {name} the teacher?",
     "What have I learned to cook from {name}?"),
    ("I signed up for {sport} with {name}, every {day}", "What did I sign up for with {name}?",
     "Which exercise do {name} and I do together?"),
    ("The plumber {name} comes on {day} at {number} past nine", "When does the plumber {name} come?",
     "At what time will {name} look at the pipes?"),
    ("{name}'s wedding is in {town}, the dress code is {colour}", "What is the dress code of {name}'s wedding?",
     "Which clothes should I wear when {name} gets married?"),
    ("My locker at the gym in {town} has the number {number}", "What is the number of my locker in {town}?",
     "Where do I leave my things while I train in {town}?"),
    ("{name} lent me {number} euros, I have to give it back in spring", "How many euros did {name} lend me?",
     "How deep am I in debt to {name}?"),
    ("I prefer the {colour} tiles for the bathroom in {town}", "Which tiles do I prefer for the bathroom in {town}?",
     "Which floor did I choose for the washroom in {town}?"),
    ("{name} broke an ankle while {sport} and can't drive", "How did {name} break an ankle?",
     "Why is {name} unable to get behind the wheel?"),
)  # fmt: skip
_ASKS = (
    "How do I {verb} {thing} properly?", "Can you explain how to {verb} {thing}?",
    "Any tips for {thing}? I want to {verb} it.",
    "What should I know before I {verb} {thing}?", "Please write me a plan to {verb} {thing}.",
)  # fmt: skip
_THINGS = (
    "a vegetable garden", "a wooden table", "a small website", "a monthly budget", "a bicycle", "a sourdough starter",
    "an old camera", "a job interview", "a long hike", "a home network", "a language course", "a surprise party",
)  # fmt: skip
_VERBS = ("prepare", "repair", "plan", "start", "improve", "organise")
_ADVICE = (
    "Begin by writing down what you want from {thing}, since a clear goal keeps the later steps short.",
    "Set aside {number} minutes a day for {thing} instead of one long weekend, because habits carry further than zeal.",
    "Most people underestimate the cost of {thing}; keep a reserve of about {number} percent and note every expense.",
    "If something goes wrong with {thing}, go back one step and change only one thing at a time.",
    "Ask somebody with experience to look at {thing} before you finish, for a second pair of eyes finds what you miss.",
    "Good materials matter: for {thing} choose those that can be replaced easily and that you can buy nearby.",
    "Keep the place tidy while you {verb} {thing}, and label whatever you take apart.",
    "The weather, the season and your own mood all play a part when you {verb} {thing}, so stay flexible.",
    "After the first week, compare {thing} with your plan and drop whatever did not help.",
    "A common mistake is to {verb} {thing} all at once; smaller portions let you learn on the way.",
    "Write the names of everyone involved on the list and agree on a date, a price and a person in charge.",
    "Remember to rest, to drink water and to celebrate when a part of {thing} is done.",
)
_PICKS = ("{name}'s Guide", "the {town} method", "the {colour} notebook", "a course in {town}")
_COLOURS = ("green", "navy", "ochre", "violet", "silver", "crimson")
_MONTHS = ("March", "April", "May", "June")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")


def chats(seed: int = 7, *, sessions: int = SESSIONS, facts: int = 160) -> list[dict[str, Any]]:
    """Return one conversation: sessions days apart, long answers, incidental facts, and questions with evidence."""
    dice = random.Random(seed)  # noqa: S311 - every run needs the same data
    told = _facts(dice, facts)
    talk: dict[str, Any] = {"speaker_a": "user", "speaker_b": "assistant"}
    asked: list[dict[str, Any]] = []
    for number in range(1, sessions + 1):
        turns: list[dict[str, str]] = []
        share = [next(told, None) for _ in range(-(-facts // sessions))]
        for fact in share:
            _exchange(dice, number, turns, asked, fact)
        month, day = divmod(number - 1, 24)
        talk[f"session_{number}"] = turns
        talk[f"session_{number}_date_time"] = (
            f"{1 + number % 11}:{10 + number % 40} pm on {day + 1} {_MONTHS[month]}, 2024"
        )
    return [{"sample_id": "chats", "conversation": talk, "qa": asked}]


def _facts(dice: random.Random, count: int) -> Iterator[tuple[str, str, str]]:
    """Yield facts with different names and places, in random order."""
    seen: set[str] = set()
    for number in range(10 * count):  # some forms run out of new names
        if len(seen) >= 2 * count:
            return
        said, plain, other = _FACTS[number % len(_FACTS)]
        values = _values(dice)
        if {plain.format(**values), other.format(**values)} & seen:
            continue
        seen.add(plain.format(**values))
        seen.add(other.format(**values))
        yield said.format(**values), plain.format(**values), other.format(**values)


def _values(dice: random.Random) -> dict[str, Any]:
    pet, petname = dice.choice(_PETS)
    job, site = dice.choice(_JOBS)
    return {
        "relation": dice.choice(_RELATIONS), "name": dice.choice(_NAMES), "pet": pet,
        "petname": petname, "town": dice.choice(_TOWNS), "dish": dice.choice(_DISHES), "tool": dice.choice(_TOOLS),
        "job": job, "site": site, "sport": dice.choice(_SPORTS), "ill": dice.choice(_ILLS)[0],
        "number": dice.randrange(11, 97), "colour": dice.choice(_COLOURS), "day": dice.choice(_DAYS),
    }  # fmt: skip


def _exchange(
    dice: random.Random, session: int, turns: list[dict[str, str]], asked: list[dict[str, Any]],
    fact: tuple[str, str, str] | None,
) -> None:  # fmt: skip
    """Add a question, a long answer that contains a recommendation, an incidental fact, and its answer."""
    thing, verb, values = dice.choice(_THINGS), dice.choice(_VERBS), _values(dice)
    _say(turns, session, "user", dice.choice(_ASKS).format(thing=thing, verb=verb))
    lines = [each.format(thing=thing, verb=verb, number=values["number"]) for each in dice.sample(_ADVICE, 10)]
    pick = dice.choice(_PICKS).format(**values)
    lines.insert(dice.randrange(3, 8), f"For this I would recommend {pick} above all others.")
    answer = _say(turns, session, "assistant", "\n\n".join(" ".join(lines[at : at + 4]) for at in range(0, 11, 4)))
    if dice.random() < 0.25:
        question = f"Which source did you recommend when I wanted to {verb} {thing}, was it {pick}?"
        asked.append({"question": question, "answer": pick, "evidence": [answer], "category": 4})
    if fact is None:
        return
    said, plain, other = fact
    where = _say(turns, session, "user", f"Thanks! {said}.")
    reply = " ".join(each.format(thing=thing, verb=verb, number=values["number"]) for each in dice.sample(_ADVICE, 5))
    _say(turns, session, "assistant", f"That is good to know. Coming back to {thing}: {reply}")
    category, question = (3, other) if len(asked) % 2 else (1, plain)
    asked.append({"question": question, "answer": said, "evidence": [where], "category": category})


def _say(turns: list[dict[str, str]], session: int, speaker: str, text: str) -> str:
    turns.append({"speaker": speaker, "dia_id": f"D{session}:{len(turns) + 1}", "text": text})
    return turns[-1]["dia_id"]
