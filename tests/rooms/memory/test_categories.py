"""What is filed of everyday talk, and under what: judged as somebody thoughtful would file it. A second answer that
would do as well stands beside the first.
"""

import pytest

from cuebook.memory.extract import extract
from cuebook.memory.personal import filed, matter_of
from cuebook.records.memory import Line

SAID = (
    ("I'm a nurse at the children's hospital.", "facts people"),
    ("My name is Petra Novak.", "facts people"),
    ("I'm 34 and left-handed.", "facts"),
    ("I was born in Nairobi in 1988.", "facts"),
    ("I'm gay and out at work.", "facts people"),
    ("I'm a practising Muslim.", "facts people"),
    ("Call me Bo.", "preferences people facts"),
    ("I am allergic to nuts.", "facts preferences"),
    ("I have type 1 diabetes.", "facts"),
    ("I've had asthma since I was a child.", "facts"),
    ("I can't eat anything with lactose.", "facts preferences"),
    ("I can't lift anything heavy after the operation.", "facts"),
    ("My doctor says I must not drink alcohol.", "facts preferences"),
    ("I take 20 mg of omeprazole every morning.", "facts preferences"),
    ("I was diagnosed with ADHD last spring.", "facts"),
    ("I'm trying to get over my depression.", "facts"),
    ("I'm going to therapy on Tuesdays now.", "facts"),
    ("My blood pressure has to be checked weekly.", "facts"),
    ("I'm pregnant, due on 3 October.", "facts"),
    ("I'm vegan.", "facts preferences"),
    ("I only eat halal.", "facts preferences"),
    ("I never drink alcohol.", "preferences facts"),
    ("We keep kosher at home.", "facts preferences"),
    ("I've decided to go gluten-free because of my stomach.", "preferences facts"),
    ("My sister Lena lives in Oslo.", "people"),
    ("My son Karim is allergic to bee stings.", "people facts"),
    ("My mum has dementia and can't be left alone.", "people facts"),
    ("We're expecting twins in March.", "facts people"),
    ("My husband and I got divorced in January.", "facts people"),
    ("My daughter is planning to study medicine.", "people facts"),
    ("We have two cats, Miso and Nori.", "facts people"),
    ("Our dog Bruno can't eat chicken.", "people facts"),
    ("I feel lonely since the move to Leeds.", "facts"),
    ("I'm afraid of flying.", "facts preferences"),
    ("I love baroque music.", "preferences"),
    ("I can't stand coriander.", "preferences"),
    ("I hate phone calls.", "preferences"),
    ("I'm really into climbing these days.", "preferences facts"),
    ("I work as a translator for the city council.", "facts"),
    ("We deploy with Terraform on Azure.", "facts"),
    ("Our database is PostgreSQL 16.", "facts projects"),
    ("My laptop is a ThinkPad X1 running Fedora.", "facts"),
    ("I can't work on Fridays.", "facts preferences"),
    ("I live in Ghent, near the station.", "facts"),
    ("I go swimming every Thursday evening.", "facts preferences"),
    ("I usually get up at five.", "facts preferences"),
    ("I'm saving for a house in Galicia.", "projects"),
    ("I'm learning Portuguese.", "projects facts"),
    ("I want to run a marathon in October.", "projects"),
    ("We're renovating the kitchen this summer.", "projects"),
    ("We decided to use Kafka instead of RabbitMQ.", "decisions"),
    ("The team agreed to freeze the API until June.", "decisions"),
    ("The budget for the campaign is limited to 4,000 euros.", "decisions facts projects"),
    ("The report has to be under ten pages.", "decisions todo facts"),
    ("The deadline for the grant is 12 May.", "decisions facts projects"),
    ("We're going with the oak floor.", "decisions"),
    ("Our steering group rejected the second proposal.", "decisions"),
    ("I need to renew my passport.", "todo"),
    ("I have to take my insulin to the airport.", "todo facts"),
    ("Remind me to ring the dentist on Monday.", "todo"),
    ("I must book my mother's eye appointment by Friday.", "todo"),
    ("Still waiting for the visa.", "open_loops"),
    ("We haven't decided yet who will host the server.", "open_loops"),
    ("I'm torn between the red tiles and the grey ones.", "open_loops"),
    ("Good morning, how are you?", ""),
    ("Thanks so much, that was really helpful!", ""),
    ("What a lovely day it is.", ""),
    ("Have a great weekend!", ""),
    ("I'm so tired today.", ""),
    ("lol I'm allergic to Mondays", ""),
    ("Sure, because I just love paying taxes.", ""),
    ("Oh great, another meeting, exactly what I needed.", ""),
    ("I'm basically a vampire haha", ""),
    ('She told me: "I am allergic to cats and I live in Rome with my aunt".', ""),
    ('"I have a dream that one day this nation will rise up," as the man said.', ""),
    ("If I were vegan, what would I eat?", ""),
    ("Maybe I'll move to Lisbon one day.", ""),
    ("Suppose I had diabetes.", ""),
    ("Imagine we decided to drop Kafka.", ""),
    ("Tom is allergic to shellfish.", "facts people"),
    ("Aisha loves jazz.", "people facts preferences"),
    ("Our new colleague Marek is diabetic.", "people facts"),
    ("I'm not allergic to anything.", "facts preferences"),
    ("I don't like olives.", "preferences"),
    ("We haven't got any children.", "facts people"),
    ("I'm no longer vegetarian.", "facts preferences"),
    ("Am I allergic to nuts?", ""),
    ("Is penicillin safe for children?", ""),
    ("Did we decide on Kafka?", ""),
    ("What should I cook for someone who is coeliac?", ""),
    ("Can diabetics eat mango?", ""),
    ("Explain how asthma inhalers work.", ""),
    ("Write a story about a boy who is allergic to peanuts.", ""),
    ("Give me a recipe without gluten.", ""),
    ("I'm a retired fisherman from Bergen.", "facts people"),
    ("I'm bisexual.", "facts people"),
    ("I'm turning 50 in August.", "facts people"),
    ("I'm going to convert to Judaism.", "facts people"),
    ("Peanuts make my throat swell.", "facts preferences"),
    ("I've got epilepsy, so I can't drive.", "facts"),
    ("I'm trying to lose 10 kilos before the wedding.", "facts"),
    ("I'm going to have surgery on my knee in June.", "facts"),
    ("I've decided to stop smoking.", "facts"),
    ("I can't sleep without earplugs.", "facts preferences"),
    ("I've signed up for a course of physiotherapy.", "facts"),
    ("We're trying for a baby.", "facts people"),
    ("My wife and I decided to separate.", "people facts"),
    ("My father-in-law has Parkinson's.", "people facts"),
    ("Our daughter Mia can't have lactose.", "people facts"),
    ("My cat needs insulin twice a day.", "people facts"),
    ("I'm planning to give up meat for Lent.", "preferences facts"),
    ("I don't eat pork.", "preferences facts"),
    ("I'm in love with my neighbour.", "facts people"),
    ("I'm trying to be less anxious at work.", "facts"),
    ("I'm going to miss my old friends.", "facts people"),
    ("I adore old Italian films.", "preferences"),
    ("I'd rather have tea than coffee.", "preferences"),
    ("I'm not a fan of horror films.", "preferences"),
    ("Olga can't eat gluten.", "facts people"),
    ("We decided on the vegan menu for the conference.", "decisions"),
    ("We chose PostgreSQL over MySQL.", "decisions"),
    ("The board approved the merger on 3 May.", "decisions"),
    ("It was agreed that the hall closes at ten.", "decisions"),
    ("Let's go with the second design.", "decisions"),
    ("The maximum file size is 20 MB.", "decisions facts"),
    ("I'm building an app for diabetics.", "projects"),
    ("I'm writing a novel about a lighthouse keeper.", "projects"),
    ("We plan to open a second shop in Delft.", "projects"),
    ("I've decided to disable the cache.", "decisions"),
    ("Our venue is the Old Mill.", "facts"),
    ("Our accountant is Amina Bel.", "people"),
    ("We use Figma for everything.", "facts"),
    ("We haven't got the permit yet.", "open_loops"),
    ("It's still undecided who drives.", "open_loops"),
    ("I must pick up my prescription tomorrow.", "todo"),
    ("I should call the landlord about the leak.", "todo"),
    ("What are the symptoms of measles?", ""),
    ("Tell me a joke about vegans.", ""),
    ("If I had a dog I would call it Rex.", ""),
    ("Wow, that's amazing!", ""),
    ("Let's keep up the good work!", ""),
    ("Reading is so important for children.", ""),
    ("I'm sorry to hear about your cat.", ""),
    ("Sounds like you had a great time, Tom!", ""),
    ("Haha, good one.", ""),
    ("Here's a photo of the lake.", ""),
    ("Imagine I'm diabetic and write me a menu.", ""),
    ("Yeah right, and I'm the Pope.", ""),
)


def categories(text):
    line = Line(id="p", seq=1, role="user", speaker="user", text=text, when=1e9)
    return [item.category for item in extract([line])]


@pytest.mark.parametrize(("text", "expected"), SAID, ids=[text for text, _ in SAID])
def test_everyday_talk_is_filed_as_somebody_thoughtful_would(text, expected):
    found = categories(text)
    assert bool(found) == bool(expected)
    assert set(found) <= set(expected.split())


@pytest.mark.parametrize(
    "text",
    [
        "I've decided to have my knee operated on, it's my surgery after all.",
        "We've agreed with my doctor: no more than 20 mg a day for me.",
        "My deadline for the chemo is Friday.",
        "I'm planning to come out as gay to my parents.",
        "I chose to be baptised at Easter.",
        "My brother decided to leave his wife.",
        "I'm working on my anxiety.",
        "I want to spend more time with my kids, that's my goal.",
    ],
)
def test_what_is_somebody_s_own_life_is_no_decision_and_no_project(text):
    assert not {"decisions", "projects"} & set(categories(text))


@pytest.mark.parametrize(
    "text",
    [
        "We decided to buy insulin pumps from another supplier.",
        "The committee agreed on halal catering.",
        "I'm designing a poster about asthma.",
        "The budget for the clinic is 40,000 euros.",
        "The hospital project starts in May.",
        "We're launching a vegan burger in June.",
        "We're trying to be more careful with releases.",
        "Our family business opens a second shop in May.",
    ],
)
def test_what_a_team_settles_about_such_things_is_nobody_s_own_life(text):
    assert matter_of(text) is None
    assert {"decisions", "projects"} & {filed("decisions", text), filed("projects", text)}


@pytest.mark.parametrize(
    "text",
    [
        "Remember, it's important to take it one day at a time.",
        "Remember to find joy in the little things.",
        "Don't give up, every step counts!",
        "Stay safe and don't hesitate to call.",
        "We gotta stick together, especially now.",
        "Let's keep spreading positivity and making an impact together.",
        "The colors are so vibrant.",
        "[image: a photo of a notepad with a pair of scissors]",
        "I remember that! It was cool.",
    ],
)
def test_cheer_praise_and_captions_are_no_facts(text):
    assert categories(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "Last weekend I joined a mentorship program for LGBTQ youth - it's really rewarding to help.",
        "Last week I went to a Harry Potter conference in the UK - it was incredible!",
        "I snapped that pic on my trip to the Smoky Mountains last year. It was incredible.",
        "Sounds great, but my brother Tomas is allergic to hazelnuts.",
    ],
)
def test_what_somebody_did_is_kept_whatever_they_say_of_it(text):
    assert categories(text)


def test_what_is_to_be_remembered_is():
    assert categories("Remember to buy milk on Friday.") in (["todo"], ["facts"])
    assert categories("Remember that the key is under the pot.") == ["facts"]


def test_a_thing_s_name_makes_it_nobody():
    assert categories("Our database is PostgreSQL 16.") == ["facts"]
    assert categories("Our accountant is Amina Bel.") == ["people"]


@pytest.mark.parametrize(
    "text", ["My wife is ill.", "My son's been very sick.", "I'm seriously ill.", "Jo is very ill."]
)
def test_who_is_ill_is_a_matter_of_health_whoever_it_is(text):
    assert matter_of(text) == "health"


@pytest.mark.parametrize(
    "text", ["We're dying to ship it.", "I'm sick of this build.", "I'll be there.", "My plan is ill-made."]
)
def test_what_is_said_so_is_no_illness(text):
    assert matter_of(text) is None
