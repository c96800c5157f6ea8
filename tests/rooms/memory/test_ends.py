"""Which fact a new statement ends, in everyday words, and which it leaves alone."""

import pytest

from cuebook.memory.extract import extract
from cuebook.memory.merge import merge
from cuebook.records.memory import Line

ENDS = [
    ("I work at Shell.", "I no longer work at Shell."),
    ("I work at Shell.", "I left Shell last week."),
    ("I work at Shell.", "I don't work at Shell any more."),
    ("I work for Philips as a welder.", "I quit my job at Philips."),
    ("I work as a nurse at St. Anna.", "I resigned from St. Anna yesterday."),
    ("I'm a teacher at the Montessori school.", "I stopped teaching at the Montessori school."),
    ("I work at Booking as a designer.", "I got fired from Booking."),
    ("I work at Philips.", "I'm no longer with Philips."),
    ("I work as a bus driver for Arriva.", "I'm not working for Arriva anymore."),
    ("I work at Shell.", "I've lost my job at Shell."),
    ("I live in Oslo.", "I'm not living in Oslo any longer."),
    ("I live in Oslo.", "I don't live in Oslo any more."),
    ("I live in Oslo with two flatmates.", "I moved out of Oslo."),
    ("We live in Porto.", "We no longer live in Porto."),
    ("I'm vegetarian.", "I'm not vegetarian any more."),
    ("I'm vegan.", "I stopped being vegan."),
    ("I don't eat meat.", "I eat meat again."),
    ("I'm vegetarian.", "I'm no longer vegetarian."),
    ("I'm allergic to peanuts.", "It turns out I'm not allergic to peanuts."),
    ("My girlfriend is Emma.", "Emma and I broke up."),
    ("My boyfriend Tim lives in Delft.", "Tim and I split up last month."),
    ("I'm married to Karin.", "Karin and I got divorced."),
    ("I'm dating Sofia.", "We broke up."),
    ("My wife is Karin.", "Karin is no longer my wife."),
    ("I drive a red Volvo.", "I sold the Volvo."),
    ("We have a car, an old Opel.", "We sold the car."),
    ("I have a boat in Lemmer.", "I sold my boat."),
    ("I own a cottage in Drenthe.", "I no longer own the cottage in Drenthe."),
    ("I have an iPhone 12.", "I gave away my iPhone."),
    ("I ride a Gazelle bike to school.", "My Gazelle was stolen."),
    ("I like tea.", "I don't like tea any more."),
    ("I love sushi.", "I no longer like sushi."),
    ("I like jazz.", "I don't like jazz."),
    ("I hate olives.", "I like olives now."),
    ("I don't like coffee.", "I've come to like coffee."),
    ("I play chess every Friday.", "I stopped playing chess."),
    ("I play the violin in a quartet.", "I gave up the violin."),
    ("I go to the gym on Mondays.", "I don't go to the gym any more."),
    ("I sing in a choir.", "I left the choir."),
    ("I'm learning Japanese.", "I've stopped learning Japanese."),
    ("I smoke a pack a day.", "I quit smoking."),
    ("I take 20 mg of citalopram.", "I no longer take citalopram."),
    ("I run every morning.", "I don't run any more since my knee hurts."),
    ("I have a dog called Rex.", "The dog died."),
    ("Our cat Minoes is 12.", "Minoes died last night."),
    ("We have a cat named Tom.", "Our cat passed away."),
    ("My dog Bruno is afraid of thunder.", "Bruno passed away on Sunday."),
    ("We're going on a trip to Rome in May.", "We cancelled the trip."),
    ("We're planning a trip to Japan.", "The trip to Japan is off."),
    ("I'm working on a project called Atlas.", "Atlas is finished."),
    ("I'm working on a project called Atlas.", "Atlas has been cancelled."),
    ("The Atlas project is due in June.", "The Atlas project was cancelled."),
    ("I have a dentist appointment on 12 June.", "I cancelled the dentist appointment."),
    ("I'm writing a novel about bees.", "I finished the novel."),
    ("We decided to use PostgreSQL.", "We're not using PostgreSQL any more."),
    ("We use Jira for tickets.", "We stopped using Jira."),
    ("I study law in Leiden.", "I dropped out of law school in Leiden."),
    ("I'm renting a studio from Mr Smit.", "I no longer rent the studio."),
    ("I have a Netflix subscription.", "I cancelled Netflix."),
    ("Please always answer in French.", "Never mind, answer in English from now on."),
    ("Please don't use emojis.", "You can use emojis again."),
    ("Please use metric units.", "Forget what I said about metric units."),
    ("Always answer in bullet points.", "You don't need to use bullet points any more."),
    ("Please call me Max.", "Stop calling me Max."),
    ("Please keep your answers short.", "Your answers may be longer again."),
    ("Never suggest recipes with pork.", "You can suggest recipes with pork again."),
    ("Please always answer in Dutch.", "Stop answering in Dutch."),
    ("I work at the bakery on Damstraat.", "I don't work at the bakery any longer."),
    ("I work as a librarian in Tilburg.", "I've quit my job in Tilburg."),
    ("I work for Ahold.", "I got laid off from Ahold."),
    ("I live in Lyon.", "I've left Lyon for good."),
    ("My flat is in Almere.", "I moved out of the flat in Almere."),
    ("I eat halal.", "I don't eat halal any more."),
    ("I'm engaged to Nadia.", "Nadia and I have split up."),
    ("I have a scooter, a Vespa.", "I've sold my Vespa."),
    ("I collect stamps.", "I've stopped collecting stamps."),
    ("I love country music.", "I don't like country music any more."),
    ("I dislike cilantro.", "I actually like cilantro now."),
    ("I play in a football team called Vitesse 3.", "I left Vitesse 3."),
    ("We have a parrot named Kiko.", "Kiko died this morning."),
    ("My horse Bella stands in Soest.", "I sold Bella."),
    ("I'm organizing a reunion in Assen.", "The reunion in Assen was called off."),
    ("I take yoga lessons on Thursdays.", "I gave up yoga."),
    ("I use Notion for my notes.", "I no longer use Notion."),
    ("I have a gym membership at Basic-Fit.", "I cancelled my membership at Basic-Fit."),
    ("Please answer in German.", "You don't have to answer in German any more."),
    ("Please always use tables.", "Forget the tables."),
    ("Never use exclamation marks.", "You may use exclamation marks again."),
    ("Please address me formally.", "You no longer need to address me formally."),
    ("I work at Vandersanden as a planner.", "I quit my job at Vandersanden."),
    ("I live in Mechelen.", "I don't live in Mechelen anymore."),
    ("I play the cello.", "I gave up the cello."),
    ("We have a dog called Bruno.", "Bruno died last winter."),
    ("I drive a Volvo.", "I sold the Volvo."),
    ("Please answer in Dutch.", "From now on answer in English."),
    ("I am vegetarian.", "I am no longer vegetarian."),
    ("I'm engaged to Lotte.", "Lotte and I broke up."),
    ("I rent a studio in Leuven.", "I moved to Hasselt last month."),
    ("I am studying law in Ghent.", "I stopped studying law."),
    ("Keep your answers short.", "You may write longer answers again."),
    ("I use Emacs for everything.", "I switched from Emacs to Helix."),
    ("My manager is Katrien.", "Katrien is no longer my manager."),
    ("I have an allotment near the canal.", "I no longer have the allotment."),
    ("I go to the gym on Tuesdays.", "I stopped going to the gym."),
    ("I have a subscription to De Standaard.", "I cancelled my subscription to De Standaard."),
    ("I'm a member of the chess club.", "I left the chess club."),
    ("Our office is in Antwerp.", "Our office is now in Brussels."),
    ("I'm allergic to peanuts.", "The doctor says I'm not allergic to peanuts after all."),
    ("I teach at a primary school in Aalst.", "I don't teach at the primary school any more."),
    ("Call me Dr. Peeters.", "Just call me An from now on."),
    ("I take metformin every morning.", "I no longer take metformin."),
    ("I'm training for the marathon in Rotterdam.", "I'm no longer training for the marathon."),
    ("I'm a barista at Koffie Noord.", "I handed in my notice at Koffie Noord and yesterday was my last day."),
    ("I work at IKEA.", "IKEA let me go."),
    ("My sister Ines lives in Bruges.", "Ines doesn't live in Bruges any more."),
    ("My sister Ines works at the harbour.", "Ines quit her job at the harbour."),
    ("I have a motorbike.", "I don't have the motorbike any more."),
    ("I'm in a band called Lowtide.", "I'm not in Lowtide any more."),
    ("I drink coffee every morning.", "I've stopped drinking coffee."),
    ("I can't eat gluten.", "I can eat gluten again."),
    ("I'm on a diet.", "I'm no longer on a diet."),
    ("Always show prices in dollars.", "Show prices in euros from now on."),
    ("answer in French", "answer in English from now on"),
    ("reply in German", "stop replying in German"),
    ("I go running with Joost on Sundays.", "Joost and I no longer run together."),
    ("We have two guinea pigs.", "We no longer have guinea pigs."),
    ("I'm pregnant.", "I had the baby, so I'm not pregnant any more."),
    ("Our landlord is Mr. Claes.", "Mr. Claes is no longer our landlord."),
    ("I'm learning to drive.", "I gave up learning to drive."),
    ("I have a season ticket for Club Brugge.", "I gave back my season ticket for Club Brugge."),
    ("I wear glasses.", "I don't wear glasses anymore."),
    ("I volunteer at the food bank.", "I don't volunteer at the food bank anymore."),
    ("I live in Ghent with Zoë.", "Zoë and I no longer live in Ghent."),
    ("My fiancé is Pieter.", "Pieter and I broke off the engagement."),
]
STAYS = [
    (
        "On day 12 I paid 40 euro for lunch and my cousin Nr12 lives in Town12.",
        "On day 13 I paid 41 euro for lunch and my cousin Nr13 lives in Town13.",
    ),
    ("My cousin Anna lives in Delft.", "My cousin Bas lives in Gouda."),
    ("I paid 40 euro for lunch on Monday.", "I paid 38 euro for lunch on Tuesday."),
    ("I work at Shell.", "My brother no longer works at Shell."),
    ("I work at Shell.", "My brother left Shell last week."),
    ("I work at Shell.", "I left my umbrella at Shell."),
    ("I work at Shell.", "I don't work on Fridays any more."),
    ("I work as a nurse at St. Anna.", "I moved to Ghent."),
    ("I live in Oslo.", "I no longer work in Oslo."),
    ("I live in Oslo.", "My sister doesn't live in Oslo any more."),
    ("I live in Oslo.", "I left Oslo airport at nine."),
    ("I'm vegetarian.", "My wife is not vegetarian any more."),
    ("I'm vegetarian.", "I don't like tea any more."),
    ("I like tea.", "I don't like coffee any more."),
    ("I like green tea.", "I don't like black tea."),
    ("I play chess every Friday.", "I stopped playing tennis."),
    ("I play the violin in a quartet.", "I gave up the piano."),
    ("I have a dog called Rex.", "My neighbour's dog died."),
    ("I have a dog called Rex.", "The cat died."),
    ("I drive a red Volvo.", "My father sold his Volvo."),
    ("I drive a red Volvo.", "I sold the piano."),
    ("We're going on a trip to Rome in May.", "We cancelled the trip to Paris."),
    ("I'm working on a project called Atlas.", "Borealis is finished."),
    ("I'm working on a project called Atlas.", "The design phase of Atlas is finished."),
    ("My girlfriend is Emma.", "My brother and Lisa broke up."),
    ("My sister Emma lives in Breda.", "My sister Emma and Tim broke up."),
    ("Please always answer in French.", "You can use emojis again."),
    ("Please use metric units.", "Never mind, answer in English from now on."),
    ("Please don't use emojis.", "Forget what I said about metric units."),
    ("I'm allergic to peanuts.", "I'm not allergic to shellfish."),
    ("I take 20 mg of citalopram.", "I no longer take ibuprofen."),
    ("I have a Netflix subscription.", "I cancelled Spotify."),
    ("I have two cats.", "I don't have a dog any more."),
    ("I work at Shell.", "I'm not leaving Shell."),
    ("I live in Oslo.", "I never want to leave Oslo."),
    ("I play chess every Friday.", "I will never stop playing chess."),
    ("I work at Shell.", "I'm thinking of leaving Shell."),
    ("I'm learning Japanese.", "I don't speak Japanese with my mother."),
    ("My birthday is on 3 May.", "My father's birthday is on 9 June."),
    ("I bought 3 lamps for the hall.", "Yesterday I bought 5 chairs for the kitchen."),
    ("I sing in a choir.", "I left the choir rehearsal early."),
    ("We use Jira for tickets.", "We stopped using Slack for tickets."),
    ("I'm married to Karin.", "My parents got divorced."),
    ("The deadline of Atlas is 3 March.", "The deadline of Borealis is 9 April."),
    ("I work for Ahold.", "My colleague got laid off from Ahold."),
    ("I work at the bakery on Damstraat.", "I no longer buy bread at the bakery."),
    ("I live in Lyon.", "I left Lyon station at noon."),
    ("I collect stamps.", "I've stopped collecting coins."),
    ("My cousin Piet lives in Ede.", "My cousin Klaas moved to Zwolle."),
    ("On Monday I ran 5 km.", "On Wednesday I ran 8 km."),
    ("We have a parrot named Kiko.", "Our hamster died."),
    ("I love country music.", "My sister doesn't like country music any more."),
    ("I use Notion for my notes.", "I no longer use Evernote."),
    ("Please answer in German.", "You can use tables again."),
    ("I'm organizing a reunion in Assen.", "The meeting in Assen was called off."),
    ("I take yoga lessons on Thursdays.", "I don't take the bus on Thursdays any more."),
    ("My horse Bella stands in Soest.", "My aunt sold her house in Soest."),
    ("I work as a librarian in Tilburg.", "I don't want to quit my job."),
    ("Room 12 costs 90 euro a night.", "Room 14 costs 120 euro a night."),
    ("I work at Vandersanden as a planner.", "I no longer work on Fridays."),
    ("I live in Mechelen.", "My brother moved to Ghent."),
    ("I play the cello.", "I gave up the piano."),
    ("We have a dog called Bruno.", "Our cat died last winter."),
    ("I drive a Volvo.", "I sold my bicycle."),
    ("Please answer in Dutch.", "My English is getting better."),
    ("I am vegetarian.", "My sister is no longer vegetarian."),
    ("I'm engaged to Lotte.", "Lotte quit her job."),
    ("I rent a studio in Leuven.", "I may move to Hasselt next year."),
    ("I am studying law in Ghent.", "I stopped drinking coffee."),
    ("I use Emacs for everything.", "I would never stop using Emacs."),
    ("My manager is Katrien.", "Katrien no longer drinks coffee."),
    ("I have an allotment near the canal.", "The canal is no longer navigable."),
    ("I'm a member of the chess club.", "I left the chess club early yesterday."),
    ("Our office is in Antwerp.", "Our warehouse is now in Brussels."),
    ("I'm allergic to peanuts.", "I'm no longer allergic to cats."),
    ("I teach at a primary school in Aalst.", "Should I stop teaching?"),
    ("I take metformin every morning.", "I no longer take the bus."),
    ("I'm training for the marathon in Rotterdam.", "If I no longer train I will get fat."),
    ("I live in Utrecht with my wife.", "I moved the sofa to the attic."),
    ("I live in Utrecht.", "I moved on to the next chapter of the book."),
    ("I speak French.", "Write the letter in English."),
    ("I am a nurse.", "I moved to Ghent."),
    ("I have two children.", "I no longer have a fever."),
    ("I work at IKEA.", "IKEA let my colleague go."),
    ("I work at IKEA.", "I left IKEA with three new shelves."),
    ("I live in Oslo.", "I don't live in the centre."),
    ("I live in Oslo.", "I was never happier than when I moved to Oslo."),
    ("I have a motorbike.", "I don't have a helmet."),
    ("I have a motorbike.", "I no longer take the motorbike to work."),
    ("I'm in a band called Lowtide.", "The drummer left Lowtide."),
    ("I drink coffee every morning.", "I don't drink coffee after noon."),
    ("I love Paris.", "I didn't love the hotel in Paris."),
    ("My wife is called Hanne.", "Hanne quit her job."),
    ("My wife is called Hanne.", "Hanne and her sister no longer talk."),
    ("Answer in French.", "How do you say goodbye in English?"),
    ("Answer in French.", "My boss answered in English."),
    ("Keep your answers short.", "The report should be longer."),
    ("I play football on Saturdays.", "Football was cancelled this Saturday."),
    ("I wear glasses.", "I broke a glass."),
    ("I have a dog called Rex.", "I'd be sad if Rex died."),
    ("I have a dog called Rex.", "Rex nearly died last year."),
    ("I study medicine in Leuven.", "I no longer study at night."),
    ("I'm the treasurer of our club.", "The secretary of our club resigned."),
    ("I eat fish.", "I don't eat meat."),
    ("I live in Utrecht and I work as a nurse.", "I no longer cycle to work."),
    ("I own a bakery in Lier.", "I sold bread at the market."),
    ("I work at Shell.", "I used to work at BP."),
]


def after(*said):
    """Say each in a pass of its own and return the items that hold and those that ended."""
    held, ended = [], []
    for seq, text in enumerate(said):
        line = Line(id=f"p{seq}", seq=seq, role="user", speaker="user", text=text, when=float(seq))
        merged = merge([*held, *ended], extract([line]))
        held, ended = merged.kept + merged.added, ended + merged.ended
    return held, ended


@pytest.mark.parametrize(("old", "new"), ENDS)
def test_a_plain_end_ends_what_it_is_of(old, new):
    before = [one.text for one in after(old)[0]]
    held, ended = after(old, new)
    assert before
    assert ended
    assert not set(before) & {one.text for one in held}


@pytest.mark.parametrize(("old", "new"), STAYS)
def test_what_is_of_somebody_or_something_else_ends_nothing(old, new):
    assert after(old)[0]
    assert after(old, new)[1] == []


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("I live in Utrecht and I work as a nurse at St. Anna.", "I moved to Ghent.", "I work as a nurse at St. Anna."),
        ("I live in Utrecht and I work as a nurse.", "I moved to Ghent.", "I work as a nurse."),
        ("I live in Utrecht and work as a nurse at St. Anna.", "I moved to Ghent.", "work as a nurse at St. Anna."),
        ("I live in Utrecht and work as a nurse at St. Anna.", "I no longer work at St. Anna.", "I live in Utrecht"),
        ("I work as a nurse at St. Anna and I live in Utrecht.", "I quit my job at St. Anna.", "I live in Utrecht."),
    ],
)
def test_of_two_statements_in_one_sentence_only_the_changed_one_ends(old, new, left):
    held, ended = after(old, new)
    assert [one.text for one in ended] == [old]
    assert left in [one.text for one in held]


def test_other_days_and_other_cousins_are_other_facts():
    posts = [f"On day {n} I paid {28 + n} euro for lunch and my cousin Nr{n} lives in Town{n}." for n in range(1, 31)]
    held, ended = after(*posts)
    assert len(held) == len(posts)
    assert ended == []


def test_what_was_to_be_forgotten_is_not_taken_for_the_wish_itself():
    held, _ = after("Please use metric units.", "Forget what I said about metric units.")
    assert [one.text for one in held] == ["Forget what I said about metric units."]


@pytest.mark.parametrize(
    ("text", "category", "kept"),
    [
        ("I like tea, and please use metric units.", "preferences", "please use metric units."),
        ("yesterday I bought 3 lamps", "facts", "yesterday I bought 3 lamps"),
        ("The deadline is 3 March", "projects", "The deadline is 3 March"),
    ],
)
def test_what_is_said_in_passing_is_filed_as_what_it_is(text, category, kept):
    assert (category, kept) in [(one.category, one.text) for one in after(text)[0]]


def test_of_a_habit_one_day_is_called_off_and_the_habit_given_up():
    assert after("I do yoga every Thursday.", "Yoga is cancelled this Thursday.")[1] == []
    assert after("I do yoga every Thursday.", "I quit yoga today.")[1] != []


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("My fiancée Zoë lives in Liège.", "Zoë moved to Köln.", "My fiancée Zoë"),
        ("My boyfriend Tim lives in Delft.", "Tim and I split up.", None),
        ("My wife Karin works at a bank.", "Karin is no longer my wife.", None),
    ],
)
def test_who_moves_stays_who_they_are_and_who_parted_does_not(old, new, left):
    held, ended = after(old, new)
    assert [one.text for one in ended] == [old]
    assert [one.text for one in held if one.text != new] == ([left] if left else [])


def test_with_whom_one_parted_is_the_partner_that_is_no_more():
    assert after("My wife is Karin.", "Lotte and I broke up.")[1] == []


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("My fiancé is Pieter.", "people"),
        ("I live in Liège.", "facts"),
        ("answer in French", "preferences"),
        ("Show prices in euros from now on.", "preferences"),
    ],
)
def test_a_short_statement_is_kept_with_its_accents_and_a_wish_without_please(text, category):
    assert [(one.category, one.text) for one in after(text)[0]] == [(category, text)]


@pytest.mark.parametrize("text", ["Mein Name ist Jürgen.", "Je suis né à Liège.", "Vivo en Málaga.", "Żyję w Łodzi."])
def test_a_short_statement_of_another_language_is_not_read_as_english(text):
    assert after(text)[0] == []
