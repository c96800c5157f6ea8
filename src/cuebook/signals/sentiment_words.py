"""Sentiment words and phrases beside VADER's lexicon: their valences, and the terms without any.

Valences are on VADER's scale, -4..4. They were tuned as docs/design/012-sentiment.md describes.
"""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Final

#: Words that VADER lacks, or that say less, or nothing, when people ask for help.
WORDS: Final = {
    **dict.fromkeys("buggy glitchy".split(), -1.5),
    **dict.fromkeys("unresponsive laggy sluggish".split(), -1.2),
    **dict.fromkeys("broke breaks breaking borked messed".split(), -1.5),
    **dict.fromkeys("slow slower clunky bloated".split(), -0.9),
    **dict.fromkeys("incorrect incorrectly nonsense nonsensical wrongly".split(), -1.5),
    **dict.fromkeys("unusable unacceptable garbage trash rubbish crap".split(), -2.7),
    **dict.fromkeys("frustrated frustration".split(), -2.2),
    **dict.fromkeys("useless worthless".split(), -2.5),
    **dict.fromkeys("ridiculous ridiculously absurd preposterous".split(), -2.4),
    # what stories, gardens and machines do, more often than moods
    **dict.fromkeys("kill kills killed killing killer killers murder murders murdered war wars".split(), -0.9),
    **dict.fromkeys("dead death deaths".split(), -1.5),
    **dict.fromkeys("fault faults refuse refuses refused violate violates violated violation".split(), -0.7),
    **dict.fromkeys("aargh argh aaargh arrgh arghh grr grrr grrrr".split(), -2.0),
    **dict.fromkeys("smh facepalm".split(), -1.6),
    **dict.fromkeys("wtf wth".split(), -2.8),
    **dict.fromkeys("lifesaver godsend".split(), 2.8),
    **dict.fromkeys("works solved resolved".split(), 1.1),
    **dict.fromkeys("fixed working".split(), 0.8),
    **dict.fromkeys("perfectly flawlessly flawless smoothly seamless seamlessly".split(), 2.2),
    **dict.fromkeys("helpful helped".split(), 1.9),
    **dict.fromkeys("tysm tyvm thankyou".split(), 2.2),
    **dict.fromkeys("ty tks thnx cheers".split(), 1.6),
    **dict.fromkeys("finally".split(), 0.6),
    **dict.fromkeys("exactly".split(), 0.5),
    # what programs do
    **dict.fromkeys("save saves saving create creates created share shares shared sharing attachment".split(), 0.0),
    **dict.fromkeys(
        "attachments secure security default value values cancel cancelled argument arguments".split(), 0.0
    ),
    "huh": -0.3,
    "ffs": -2.6,
    "lame": -1.6,
    "pointless": -2.0,
    "nope": -0.6,
    "stuck": -1.4,
    "unclear": -1.0,
    "yay": 2.4,
    "hooray": 2.4,
    "neat": 1.6,
    "wow": 1.8,
    "ok": 0.9,
    "okay": 0.8,
    "sure": 0.9,
    "yes": 1.4,
    "yeah": 0.9,
    "please": 0.0,
    "help": 0.4,
    # said in passing: of GoEmotions' training texts with no other word of the lexicon, most were neutral
    **dict.fromkeys("friend friends leave play number".split(), 0.0),
    "no": -0.6,
    # as discourse goes, or a formula: neither praise nor an emoticon
    **dict.fromkeys("honestly dx xp sin".split(), 0.0),
    "disappointed": -2.4,
    "nightmare": -2.4,
}


#: Combined phrases: each beginning with each end, and the valence of the whole.
_PAIRED: Final = (
    (
        """
        doesn't, does not, doesnt, didn't, did not, didnt, don't, dont, won't, will not, wont, still doesn't,
        still won't, still not, not, isn't, isnt, never, wouldn't, aren't, no longer
        """,
        """
        work, working, works, help, helping, compile, compiling, start, load, loading, open, respond, responding,
        build, save, connect, run
        """,
        -1.9,
    ),
    (
        "keep, keeps, kept",
        """
        crashing, failing, breaking, freezing, hanging, dying, disconnecting, stopping, restarting, ignoring,
        forgetting, repeating
        """,
        -2.2,
    ),
    ("give, gave, giving", "up", -2.3),
    ("same, same exact, exact same", "error, problem, issue, bug, mistake, crash", -1.6),
    ("same", "error again, problem again, issue again, bug again, mistake again", -2.0),
    ("you don't, you do not, you never, you still don't", "understand, listen, get it, read, even, care", -1.8),
    ("nobody, no one", "answers, answered, replies, helps, refunds, cares, listens, responds, reads", -1.6),
    (
        "you, you've, you have, you just, you've just",
        "deleted, overwrote, overwritten, erased, wiped, ruined, lost my, lost our, lost all",
        -2.2,
    ),
    ("third, 3rd, fourth, 4th, fifth", "time you, time i, time now, time already, time that you, time in a row", -2.4),
    ("second, 2nd", "time you, time now, time i tell, time i explain, time i ask, time i say, time in a row", -2.2),
    ("for the", "third time, 3rd time, fourth time, 4th time, fifth time, hundredth time, tenth time", -2.4),
    ("how often do i have, how many times do i have, how often must i", "to, to tell, to say, to repeat", -2.6),
    ("hasn't, hasnt, has not, haven't, didn't, have not", "helped, helped once, helped at all, helped one bit", -2.4),
    ("two, three, four, five, six, several, a hundred", "times now, times already, times by now, times in a row", -2.0),
    ("patience is, my patience is", "running out, wearing thin, at an end, gone", -2.4),
    ("losing, lost, lose, losing my, lost my, out of, running out of, ran out of", "patience", -2.2),
    ("hardly, barely, scarcely", "an improvement, usable, better, works, working, helpful, readable, any better", -1.8),
    ("expected, hoped for, hoping for, hoping to get", "more, better, something better, something more", -1.8),
    ("made, makes, you made, you've made", "my day, my week", 2.4),
    ("driving, drives, drove", "me crazy, me mad, me nuts, me insane, me up the wall", -3.2),
    ("not what i", "asked, asked for, want, wanted, meant, said, need, needed", -1.9),
    ("no", "problem, problems, issue, issues, error, errors, bugs, crashes, complaints, warnings, failures", 1.2),
    ("no more", "problems, issues, errors, bugs, crashes, complaints, warnings, failures", 1.6),
    ("without, without any", "problem, problems, issue, issues, error, errors, bugs, crashes, warnings, failures", 1.0),
    (
        "problem, issue, error, bug, crash, mistake",
        """
        solved, fixed, is gone, is fixed, is solved, is resolved, was fixed, was solved, is now gone, is now fixed,
        got fixed, has been fixed, has been solved, has been resolved
        """,
        1.9,
    ),
    ("that, this, which", "fixed it, solved it, did it, resolved it, helped", 2.0),
    (
        "",
        """
        works now, working now, works again, working again, now works, now it works, it works, works fine,
        works great, got it working, runs now, running again
        """,
        1.8,
    ),
)


def _phrases() -> Iterator[tuple[str, float]]:
    """Yield each phrase with its valence; terms have none."""
    yield from ((" ".join(each.split()), 0.0) for each in f"{TERMS},{_LIKE}".split(","))
    for beginnings, ends, valence in _PAIRED:
        for beginning, end in product(beginnings.split(","), ends.split(",")):
            yield " ".join(f"{beginning} {end}".split()), valence
    yield from _SAID.items()


#: Mishaps of software: reports, and mild.
MISHAPS: Final = {
    **dict.fromkeys("crash crashed crashes crashing failed fails failing failure failures".split(), -1.2),
    **dict.fromkeys("bug bugs error errors glitch glitches problem problems".split(), -1.1),
    **dict.fromkeys("hangs hung freezes froze frozen freezing".split(), -1.1),
}
#: Cases where `like` compares, and where it only asks.
_LIKE: Final = """
    looks like, look like, looked like, sounds like, sound like, seems like, seem like, feels like, feel like,
    felt like, something like, anything like, nothing like, things like, stuff like, it's like, its like, was like,
    is like, are like, be like, just like, more like, like a, like an, like when, like what, would like, i'd like
"""

_SAID: Final = {
    "to be honest": 0.0, "can't thank you enough": 3.0, "cannot thank you enough": 3.0, "made my day": 2.6,
    "makes my day": 2.6, "what a relief": 2.2, "so much for": -1.5, "opposite of what": -1.6, "wish i had never": -2.0,
    "wish i hadn't": -1.6, "pretty bad": -2.2, "pretty sure": 0.2, "pretty slow": -1.2, "pretty annoying": -2.0,
    "pretty disappointing": -2.0, "pretty useless": -2.4, "pretty much": 0.0, "pretty confusing": -1.4,
    "full marks": 2.0, "full score": 1.6, "outdone yourself": 2.4,
    "nothing special": -0.2, "step backwards": -1.8,
    "is a joke": -2.4, "are a joke": -2.4, "what a joke": -2.4, "a bad joke": -2.4,
    "wrong with you": -2.4, "why can't i": -1.2, "why won't it": -1.2, "why doesn't it": -1.2, "doesn't it work": -1.4,
    "can't stand": -2.2, "screwed up": -1.7, "waste of time": -2.6, "makes no sense": -1.8,
    "doesn't make sense": -1.6, "does not make sense": -1.6, "doesn't make any sense": -1.8, "make no sense": -1.8,
    "makes sense": 1.0, "make sense": 0.5, "sick of": -2.3, "tired of": -2.1, "had enough": -2.0, "fed up": -2.4,
    "losing my mind": -2.8, "lost my mind": -2.2, "wits end": -2.6, "last straw": -2.4, "for the last time": -2.2,
    "how many times": -2.0, "you already said": -1.4, "what the hell": -2.6, "what the heck": -2.0,
    "what the fuck": -3.0, "are you kidding": -2.3, "you kidding me": -2.3, "you serious": -1.4,
    "thanks for nothing": -2.8, "for nothing": -1.4, "no luck": -1.7, "no idea": -0.9, "no clue": -0.9,
    "no use": -1.5, "not good": -1.9, "not helpful": -1.9, "not impressed": -1.9, "not great": -1.2,
    "not happy": -2.0, "not sure": -0.3, "not right": -1.5, "not true": -0.8, "not an answer": -1.7,
    "not working": -1.9, "doesn't do anything": -1.6, "does nothing": -1.5, "nothing happens": -1.3,
    "nothing works": -2.2, "takes forever": -1.8, "took forever": -1.6, "took ages": -1.4, "takes ages": -1.6,
    "timing out": -1.2, "times out": -1.0, "locked out": -1.4, "not again": -1.8, "forget it": -1.5,
    "never mind": -0.3, "come on": -0.7, "oh no": -1.4, "oh come on": -1.8, "stop it": -1.6, "shut up": -2.4,
    "screw this": -2.6, "screw it": -2.0, "hate it": -2.7, "can't believe": -0.9, "get lost": -2.2, "big deal": -0.5,
    "yeah right": -2.0, "as if": -0.6, "my bad": 0.0, "worse than": -2.0, "even worse": -2.4, "worst ever": -3.0,
    "wrong again": -2.3, "can't get it": -1.2, "get it to work": -0.6, "going nowhere": -1.8,
    "going in circles": -1.9, "in circles": -1.4, "pain in the": -2.0, "a pain": -1.6, "up and running": 1.5,
    "did the trick": 2.1, "does the trick": 1.9, "like a charm": 2.2, "spot on": 2.2, "nailed it": 2.4,
    "looks good": 2.0, "sounds good": 1.5, "all good": 1.6, "so far so good": 1.5, "thumbs up": 1.8, "well done": 2.4,
    "good job": 2.2, "great job": 2.8, "nice work": 2.2, "good work": 2.2, "nice one": 2.0, "good call": 1.6,
    "good point": 1.4, "good catch": 1.8, "can't complain": 1.2, "couldn't be happier": 3.0,
    "couldn't be better": 2.8, "exactly what i": 1.6, "just what i": 1.4, "saved my": 2.0, "saved me": 1.8,
    "saves me": 1.6, "learned a lot": 1.8, "not bad": 1.3, "not bad at all": 1.8, "no worries": 0.9,
    "not too bad": 1.1, "not half bad": 1.3, "much better": 2.2, "way better": 2.2, "so much better": 2.5,
    "no problem": 1.0, "a lot better": 2.2, "never better": 2.5, "got it": 0.5, "no need": 0.0, "why not": 0.2,
    "not only": 0.0, "no doubt": 0.4, "not a problem": 1.0, "not an issue": 0.9, "don't worry": 0.6,
    "good morning": 0.5, "good evening": 0.5, "good afternoon": 0.5, "good night": 0.6, "good grief": -1.4,
    "good luck": 2.2, "good enough": 1.0, "god damn": -2.0, "holy shit": -0.8, "holy crap": -0.6, "is down": -1.2,
    "are down": -1.2, "went down": -1.0, "is gone": -0.9, "are gone": -0.9, "gone again": -1.2, "look forward": 1.2,
    "no no": -1.2, "no no no": -1.6, "no no no no": -2.0, "looking forward": 1.4, "bad idea": -1.6, "good idea": 1.6,
    "great idea": 2.2, "kill myself": -3.8, "killing myself": -3.8, "kill yourself": -3.6, "want to die": -3.6,
    "end my life": -3.8, "hurt myself": -3.2, "end it all": -3.0, "don't get it": -1.2, "i'm lost": -1.2,
    "you forgot": -1.1, "you missed": -1.1, "you ignored": -1.6, "you broke": -1.8, "found it": 0.6,
    "not quite": -0.8, "missing the point": -1.7, "missed the point": -1.7, "done with this": -1.8,
    "done with you": -2.0, "kidding me": -2.0, "must be kidding": -2.2, "my mistake": 0.0, "my fault": -0.2,
    "you were right": 1.2, "you're right": 1.0, "you are right": 1.0, "whatever you say": -1.2, "ok whatever": -1.0,
    "okay whatever": -1.0, "is this a joke": -2.4, "as i said": -0.9, "like i said": -0.9, "i told you": -0.9,
    "i already told": -1.5, "i already said": -1.5, "are you even": -1.6, "way too": -0.6, "out of my mind": -1.5,
    "lose my mind": -2.4, "want my money back": -2.4, "money back": -1.2, "rip off": -2.2, "scam": -2.4,
    "speak to a human": -1.6, "talk to a human": -1.6, "real person": -0.8, "file a complaint": -2.2,
}  # fmt: skip


#: Terms that contain a negative or positive word but are neutral. Whole, in lower case.
TERMS: Final = """
    error handling, error handler, error handlers, error rate, error rates, error code, error codes, error message,
    error messages, error log, error logs, error page, error budget, error boundary, error type, error types,
    error case, error cases, error path, error paths, fatal error, fatal errors, syntax error, type error,
    runtime error, dead code, dead letter, dead letters, deadlock, dead lock, dead link, dead links, dead key,
    dead keys, critical section, critical sections, critical path, mission critical, garbage collector,
    garbage collection, garbage collected, garbage collectors, memory leak detector, force push, force pushed,
    force kill, brute force, race condition, race conditions, broken pipe, broken link checker, broken links,
    segmentation fault, page fault, page faults, fault tolerance, fault tolerant, fault injection, bus error,
    best practice, best practices, pros and cons, like button, like count, dark theme, dark mode, risk score,
    risk assessment, risk analysis, attack surface, attack vector, denial of service, poison pill, zombie process,
    zombie processes, orphan process, orphaned process, master slave, kill signal, kill switch, kill command,
    kill process, kill session, kill chain, hit rate, miss rate, cache miss, cache misses, cache hit, loss function,
    packet loss, lost update, lost updates, conflict resolution, merge conflict, merge conflicts, bug report,
    bug reports, bug tracker, bug tracking, bug fix, bugfix, bug fixes, bug label, crash report, crash reports,
    crash reporter, crash test, crash course, crash recovery, failure mode, failure modes, failure rate,
    failure cases, fail fast, fail safe, failed jobs, failed messages, failed requests, failed tests, fail over,
    problem statement, problem set, problem domain, problem details, issue tracker, stop word, stop words, stop sign,
    stop button, stop condition, dirty read, dirty reads, dirty flag, dirty bit, greedy algorithm, lazy loading,
    lazy evaluation, naive bayes, weak reference, weak references, strong reference, weak map, strong typing,
    strict mode, free space, free memory, free plan, free tier, free port, free list, open source, fair queue,
    fair scheduling, trust store, trusted types, support vector, support ticket, play store, play button,
    share button, shared memory, thread safe, type safe, safe mode, clean architecture, clean build, ideal gas,
    golden master, hero image, hero section, black hole, cut off date, trash folder, trash can, junk mail, junk folder,
    spam filter, bad request, bad gateway, invalid input, warning level, warnings as errors, block list, alert box,
    worst case, best case, edge case, null pointer, undefined behavior, destructive operation, destroy method,
    hard drive, hard disk, hard link, hard fork, hard coded, hard reset, war file, kill all, kill the process,
    best friend, best friend's, best friends, best man, with respect, with all due respect,
    great grandmother, great grandfather
"""

#: How an informational question begins.
QUESTIONS: Final = """
    how (?:do|does|can|could|should|would|to|is|are|much|long|often|many|did|was|were), what, what's, which, where,
    when, who, who's, whose, why, is there, are there, does, do, did, is it, is the, is an?, are the, was the, was it,
    should, can (?:i|we|a|the|one), could (?:i|we), (?:recommend|suggest|name)
"""

#: How a sentence begins that orders a text: the rest, up to a comma, is the text's subject matter.
WORKS: Final = """
    compose, define, describe, draft, explain, generate, paraphrase, proofread, rewrite, rephrase, summari[sz]e,
    translate, write, tell me (?:a|about), give me (?:a|an|some), make (?:a|an|up|the),
    suggest, invent, imagine
"""

#: Words of a mere acknowledgment: "ok thanks", "cool, got it".
ACKNOWLEDGMENTS: Final = """
    ok okay k thanks thx thank you ty sure fine alright right cool yes yeah yep got it good great nice will do then so
    understood noted tks no worries i see makes sense for now the info
"""

#: Emoji whose description in VADER's table has no valence.
EMOJI: Final = {
    "\U0001f621": "angry face", "\U0001f624": "annoyed face", "\U0001f92c": "angry swearing face",
    "\U0001f644": "annoyed eyes", "\U0001f62b": "frustrated face", "\U0001f629": "frustrated face",
    "\U0001f926": "disappointed", "\U0001f4a9": "crap", "\U0001f480": "ugh", "\U0001f680": "great",
    "\U0001f389": "yay", "\U0001f4af": "perfect", "\u2705": "solved", "\U0001f64f": "thanks", "\U0001f973": "happy",
    "\U0001f44d": "great", "\U0001f44e": "bad", "\U0001f64c": "yay", "\U0001f929": "amazed",
    "\U0001f972": "sad smile",
}  # fmt: skip

#: Punctuation around a word.
_EDGES: Final = '!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~'
#: By first word: the words of each phrase, the longest first.
Phrases = dict[str, tuple[tuple[str, ...], ...]]


@cache
def valences() -> dict[str, float]:
    """Return the valence of each phrase (its words joined by `_`) as one word; of a term 0. Built on first use."""
    return MISHAPS | {phrase.replace(" ", "_"): valence for phrase, valence in _phrases()}


@cache
def phrases() -> Phrases:
    """Return the phrases by their first word."""
    results: dict[str, list[tuple[str, ...]]] = {}
    for phrase in sorted((each for each in valences() if "_" in each), key=lambda each: -each.count("_")):
        words = tuple(phrase.split("_"))
        results.setdefault(words[0], []).append(words)
    return {first: tuple(each) for first, each in results.items()}


def has_phrase(sentence: str) -> bool:
    """Return whether a sentence with joined phrases has one with a valence."""
    if "_" not in sentence:
        return False
    known = valences()
    return any("_" in token and known.get(token.strip(_EDGES).lower()) for token in sentence.split())


def join_phrases(sentence: str) -> str:
    """Join the words of each phrase in a sentence by `_`, so that it is one word of the lexicon."""
    starts = phrases()
    tokens = sentence.split()
    bare = [token.strip(_EDGES).lower() for token in tokens]
    if starts.keys().isdisjoint(bare):
        return sentence
    joined: list[str] = []
    place = 0
    while place < len(tokens):
        here = next(
            (len(each) for each in starts.get(bare[place], ()) if tuple(bare[place : place + len(each)]) == each), 1
        )
        joined.append(
            "_".join([*(each.strip(_EDGES) for each in tokens[place : place + here - 1]), tokens[place + here - 1]])
        )
        place += here
    return " ".join(joined)
