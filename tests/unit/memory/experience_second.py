"""Labeled queries for the advice of two more projects, labeled before the selection first ran on them."""

from typing import Final

from cuebook.records.persona import Experience


def _advice(**when: str) -> tuple[Experience, ...]:
    return tuple(Experience(exp_id=name, when=text, what="…") for name, text in when.items())


ADVICE: Final[dict[str, tuple[Experience, ...]]] = {
    "desk": _advice(
        refund="A customer asks for money back or complains about being charged wrongly",
        migrate="The user wants to change the schema of a database that is in production",
        beginner="A learner says that he has never programmed before and asks where to start",
        allergy="Somebody asks for a recipe or a menu and mentions an allergy or an intolerance",
        flaky="A test passes locally but fails now and then in continuous integration",
        negotiate="The user prepares for a salary negotiation or a job offer",
    ),
    "home": _advice(
        outage="The user reports that a website or service is down, slow or not reachable",
        resume="Somebody wants a CV, a résumé or a cover letter to be written or improved",
        budget="The user asks how to save money or make a household budget",
        pet="A dog or cat is ill, doesn't eat or behaves strangely",
        secrets="Code or configuration contains a password, an API key or another secret",
    ),
}

#: Project, query, and the ids of the advice that fits it.
PAIRS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("desk", "You took 49 euros twice from my card, I want one of them returned.", ("refund",)),
    ("desk", "Can I get my money back? The shoes don't fit.", ("refund",)),
    ("desk", "We need to rename a column in our live Postgres, 200 million rows. How?", ("migrate",)),
    ("desk", "How do I split a table in production without downtime?", ("migrate",)),
    ("desk", "I've never written a line of code. What should I learn first?", ("beginner",)),
    ("desk", "total newbie here, want to learn programming, which language do i start with", ("beginner",)),
    ("desk", "What can I bake for a friend who can't have gluten?", ("allergy",)),
    ("desk", "Dinner for six, one of them is allergic to nuts. Ideas for a menu?", ("allergy",)),
    ("desk", "I'm lactose intolerant, is there a good carbonara recipe?", ("allergy",)),
    ("desk", "test_login fails about one run in ten on the CI server but never on my laptop", ("flaky",)),
    ("desk", "Our pipeline is red at random. Rerunning it makes the tests green.", ("flaky",)),
    ("desk", "I have an offer for 62k and would like more. What do I say on the call?", ("negotiate",)),
    ("desk", "How do I ask my boss for a raise?", ("negotiate",)),
    ("desk", "The invoice is wrong, you billed me for three seats and I've one.", ("refund",)),
    ("desk", "Integration tests are unstable on GitHub Actions, locally all good", ("flaky",)),
    ("desk", "What's the weather like in Oslo in May?", ()),
    ("desk", "Give me a recipe for pancakes.", ()),
    ("desk", "How do I write a unit test for a class with a database in Python?", ()),
    ("desk", "Which database should I choose for a chat app?", ()),
    ("desk", "What does the word allergic come from?", ()),
    ("desk", "Write a cover letter for a nurse.", ()),
    ("desk", "How much money do Americans spend on pets?", ()),
    ("desk", "I've been programming for twenty years, what's new in C++23?", ()),
    ("desk", "Where is my parcel?", ()),
    ("desk", "Translate 'good morning' into Japanese.", ()),
    ("desk", "Who was the first programmer?", ()),
    ("desk", "Set up GitHub Actions for a Go project.", ()),
    ("desk", "What is a production line?", ()),
    ("desk", "Tell me a story about a fox.", ()),
    ("desk", "How do I convert a list to a set?", ()),
    ("home", "our shop website has been down since noon", ("outage",)),
    ("home", "The page takes 30 seconds to load, what can I do?", ("outage",)),
    ("home", "Improve my CV please", ("resume",)),
    ("home", "I'm applying for a job as a nurse, can you write the letter?", ("resume",)),
    ("home", "How can I save more money each month?", ("budget",)),
    ("home", "We spend too much on groceries, help us plan our expenses", ("budget",)),
    ("home", "My cat hasn't eaten for two days", ("pet",)),
    ("home", "our puppy keeps scratching its ears and whines", ("pet",)),
    ("home", "I committed my AWS key to git", ("secrets",)),
    ("home", "Where should I store the database password of this app?", ("secrets",)),
    ("home", "How do I build a website?", ()),
    ("home", "Which dog breed is good for kids?", ()),
    ("home", "What is an API?", ()),
    ("home", "Convert 5 miles to km", ()),
    ("home", "Save this file as PDF", ()),
    ("home", "What's the secret of a good pizza?", ()),
    ("home", "Is the moon slowly moving away?", ()),
    ("home", "Write a letter to Santa", ()),
    ("home", "Turn down the volume", ()),
    ("home", "Who was president in 1995?", ()),
)
