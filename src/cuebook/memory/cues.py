"""The words by which a statement shows that something changed, ended, was done, is still to do, or is somebody's.

What takes no account of case (`re.IGNORECASE`) is looked for in a text as it is, and so are OWNER and ACRONYM, which
tell names by their capitals; all else in lower-case text (`lowered`), which takes half the time or less.
"""

import re
from typing import Final

from cuebook.memory.patterns import SUBJECTS
from cuebook.memory.signs import RELATION
from cuebook.memory.slots import stem
from cuebook.records.expression import Expression

#: A part of so many words, without a verb or a subject, is no statement of its own.
FRAGMENT: Final = 5
SUBJECT_FIRST: Final = Expression(r"(?:i|we|he|she|they|it|you|the|an?|my|our|his|her|their|and|to)\b", re.IGNORECASE)
#: Words that say: this is new, it was otherwise before.
CHANGE: Final = Expression(
    r"\b(?:moved|moving|relocat\w+|now|instead|no longer|any ?more|chang(?:e|ed|es|ing)|switch(?:ed|es|"
    r"ing)?|reschedul\w+|postpon\w+|cancel\w*|called off|"
    r"(?:push(?:ed|es|ing)?|put|puts|putting|set|mov(?:ed|e|ing)|shift(?:ed|ing)?|bring|brought|"
    r"pulled)(?: \S+){0,5} (?:back|off|out|forward|to|up|till|until)|bumped|delayed|shifted|actually|"
    r"scrap(?:ped)?|correction|"
    r"turns? out|turned out|new|swapp?\w*|replac\w+|rather than|drop(?:ped)?|quit|left|sold|gave up|"
    r"given up|stopped|off the table|after all|update|upgrad\w+|downgrad\w+|raised|raising|cut|"
    r"(?:go|goes|went|gone|came|come|comes) (?:up|down)|went with|gone for|ended up|extended|final(?:ly|"
    r"ised|ized)?|back to|fell through|broke up|split up|wrong|mistaken?|misremember\w*|i meant|expired|"
    r"increase[ds]?|revised|tak(?:es?|en|ing) over|took over|(?:more|extra) (?:days?|weeks?|months?|time)|"
    r"(?:days?|weeks?|months?) more|as of|from now on|from here on|in (?:its|his|her|their) place|"
    r"isn't .{1,40} (?:till|until)|this time|re-?booked|rearranged|having to wait|ha(?:s|ve) to wait|"
    r"(?:go|gone|going) to the \w+ instead|pack(?:ed|ing) (?:it )?in|has it now|no more|reduced|lowered|doubled|"
    r"put (?:me|us|him|her|it|them) (?:back|on|to|off)|gone to \w+ instead|a change|called it a day|not (?:before|"
    r"until|till)|"
    r"upped|traded|got rid of|started \w+ing|from (?:the )?(?:\d{1,2}(?:st|nd|rd|th)?(?: of)? )?"
    r"(?:next|january|february|march|april|may|june|july|august|september|october|november|december)\b"
    r"(?! (?:to|till|until))|from (?:(?:this|next) )?(?:mon|tues|wednes|thurs|fri|satur|sun)day\b(?! (?:to|till|"
    r"until|on|"
    r"evening|morning|night))|found (?:us )?(?:an?|the) (?:new )?(?:flat|house|apartment|place|unit|room|job))\b",
)
#: What comes after these words held before and is over.
OVER: Final = Expression(
    r"\b(?:instead of|rather than|no longer|any longer|used to(?: be| have| go)?|replac(?:es?|ed|ing)|"
    r"scrap(?:ped|ping)?|forget(?: about)?|cancel(?:led|ed|ling|ing)?|call(?:ed)? off|dropp(?:ed|"
    r"ing)(?! off)|drop|quit(?:ting)?|"
    r"left (?:my|our)(?! \w+ (?:an?|the|some) )|leaving (?:my|our)|sold(?= (?:the|my|our|his|her|their)\b| "
    r"(?-i:[A-Z]))|"
    r"stopp(?:ed|ing)(?! (?:at|by|for|in|on|(?:the|my|our) (?:car|bus|train|bike|van|truck|taxi|music|video|"
    r"timer))\b)|gave up|"
    r"given up|giving up|done with|(?:finished|out of|through with|over with|finished off|pulled out of|"
    r"backed out of|dropped out of)(?= (?:with )?(?:the|my|our)\b)(?: with)?|broke up with|away from|"
    r"no more|traded(?: in)?|(?:got|getting) rid of|(?:gave|given) (?:away|back)|handed back|"
    r"from(?= (?:\S+ ){1,4}to\b)|"
    r"not(?= (?:\S+ ){1,4}(?:but|any ?more|anymore)\b)|"
    r"don't(?= (?:\S+ ){1,5}any ?more\b))"
    r"\s+((?:[^\s.,;:!?—–-]+[ -]?){1,5})",
    re.IGNORECASE,
)
#: The thing before these words is over.
OFF: Final = Expression(
    r"(?<!\S)((?:[^\s.,;:!?—–-]+ ){1,5}?)(?:(?:(?:is|are|was|were|has been|have been|got)|"
    r"(?<='s) ) ?(?:now |all |finally )?(?:off(?! (?:to|on|at|work|from|sick|ill|duty|for|until|till|with))|"
    r"dropped|no more|gone|over|"
    r"finished|done with|(?:finished|out of|through|over|finished off|pulled out of|backed out of|"
    r"dropped out of)(?= (?:with )?(?:the|my|our)\b)(?: with)?|sold|stolen|totalled|written off|demolished|history|"
    r"dead|out of the question)"
    r"|(?:is |are |was |were |has been |have been |got )?(?:(?:cancell?ed|called off)"
    r"(?! (?:its|their|his|her|the|my|our|an?)\b)|frozen|shelved|suspended|scrapped|"
    r"fell through|"
    r"fallen through|(?:filed for |went |gone )bankrupt(?:cy)?|went bust|closed down|shut down))\b"
    r"|\b(?:put(?:ting|s)?|placed) ((?:[^\s.,;:!?—–-]+ ){1,5}?)on (?:hold|ice)\b"
    r"|\bwith (?:the|my|our) ((?:[^\s.,;:!?—–-]+ ){1,3})gone\b",
    re.IGNORECASE,
)
#: What one only has to leave is not left yet.
NOT_YET: Final = Expression(
    r"(?:\b(?:must|have to|has to|need to|should|almost|nearly|never|not|would|could|might)|n['’]t)(?: \w+)?\s*$",
    re.IGNORECASE,
)
NEGATIVE: Final = Expression(
    (
        r"\b(?:no longer|not|never|no|without|cancel\w*|called off|scrap\w*|any ?more|stopped|quit|gave up|"
        r"given up|sold|dropped|fell through)\b|n['’]t\b"
    ),
)
DONE_WORDS: Final = (
    r"done|sorted|finished|fixed|paid|booked|sent|submitted|bought|ordered|called|renewed|signed|"
    r"completed|handed|dropped off|picked up|collected|passed|returned|cancell?ed|filed|received|"
    r"arrived|came|heard back|approved|granted|went|decided|settled|chose|chosen|picked|delivered|"
    r"failed|took care|ticked off|crossed off|replied|visited|met|wrote|written|posted|mailed|emailed|rang|spoke|"
    r"talked|"
    r"told|repaired|installed|cleaned|serviced|registered|enrolled|scheduled|reserved|made|measured|checked|"
    r"scanned|painted|built|planted|removed|joined|no longer needed"
)
DONE: Final = Expression(rf"\b(?:{DONE_WORDS})\b|\btick (?:it|that) off\b")
#: What is behind one: it was, it went well, it's in.
PAST: Final = Expression(
    r"\b(?:went|was|were|came|got|had|took|handed|did|gave|put|says|said|\w{3,}ed)\b|"
    r"(?:['’]s|\bis|\bare|\bs) (?:in|out|off|back|here|done|over)\b(?! (?:the|an?|my|our|on|at|to|for|of|in|till|"
    r"until)\b)",
)
AHEAD: Final = Expression(r"(?:['’]ll|\bwill|\bgoing to|\bhave to|\bis being|\bget|\bwas going)\b|n['’]t\b|\bnot\b")
DONE_STEMS: Final = frozenset(stem(word) for word in re.findall(r"[a-z]+", DONE_WORDS)) | {"do", "hav"}
TASK: Final = Expression(
    r"\b(?:needs? to|have to|has to|must|should|got to|gotta|ought to|owe|remind me|"
    r"don't (?:let me )?forget|to[- ]do|waiting (?:for|on|to)|haven't|hasn't|have not|"
    r"(?:i|we)(?:'ll|’ll| will)|still (?:deciding|undecided|looking|needs?|has|have|open)|undecided|"
    r"torn between|pending|not yet|up in the air|planning to|going to|want to|find out|figure out|"
    r"on (?:my|the) list|whether|(?:is|are|was|falls|comes|'s|’s) (?:now )?due|(?:i|we)['’]?(?:ve|m) to|"
    r"needs?(?= \w+ing\b)|"
    r"expires?|runs out|has to be|(?:^|[,.;:] ?)need to)\b",
)
ASKS: Final = Expression(
    (
        r"\b(?:whether|find out|figure out|undecided|unclear|don't know (?:if|when|where|who)|not sure|"
        r"waiting to hear|applied (?:to|for)|torn between|haven't decided|still deciding)\b"
    ),
)
MORE: Final = Expression(r"\b(?:another|second|also|additional|as well|on top of|in addition|extra|too)\b")
STATES: Final = Expression(
    (
        r"\b(?:is|are|am|has|have|costs?|will|starts?|ends?|opens?|closes?|leaves?|arrives?|lives?|works?|"
        r"takes?|stands at|booked for|due|set for|scheduled for|named|called)\b|['’](?:s|m|re|ll|ve)\b"
    ),
)
OWNER: Final = Expression(
    rf"\b(?:[Mm]y|[Oo]ur|[Hh]is|[Hh]er|[Tt]heir)\s+(?:[\w-]+\s){{0,2}}?({RELATION})\b"
    r"|\b([A-ZÀ-Þ][\w-]+)['’]s\b(?! (?:an?|the|not|in|on|at|been|got|going)\b)"
)
#: A thing of the speaker's own, not of kin.
OWN: Final = Expression(rf"\b(?:[Mm]y|[Oo]ur)\s+(?!(?:[\w-]+\s){{0,2}}?{RELATION}\b)")
NO_OWNER: Final = frozenset("it that there what he she here where who how everything nothing".split())
#: Capitals that name no person: "the MOT", "the VAT return".
ACRONYM: Final = Expression(r"\b[A-Z]{2,5}\b")
EXCLUSIVE: Final = frozenset(subject for subject, _ in SUBJECTS)
FAVOURITE: Final = Expression(r"\bfavou?rite\b")
CLAUSES: Final = Expression(
    (
        r"[,;:.!?…—–]+\s+|\s+[-–—]\s+|\s+(?:so|but|because|which)\s+|\s+and\s+(?=(?:i|we|he|she|they|it|you|"
        r"my|our|his|her|their|then|i'm|i've|she's|he's|we're|we've|it's)\b|"
        r"(?:the|an?) (?:[\w-]+ ){1,3}(?:is|are|was|were|will|has|have|needs?|costs?)\b)"
    ),
    re.IGNORECASE,
)


#: What has a price, and what one pays by the month to live in or to work from.
PRICES: Final = frozenset(map(stem, "rent price fee salary wage deposit budget mortgage pension bill".split()))
HOUSING: Final = frozenset(map(stem, "flat apartment house landlord landlady unit studio room".split()))
MONTHLY: Final = Expression(r"\b(?:a|per|each|every) month\b|\bmonthly\b", re.IGNORECASE)
#: Roles that one person or firm has at a time.
ROLE: Final = Expression(
    rf"\b(?:{RELATION}|contact|principal|head|chair|director|president|secretary|treasurer|captain|editor|"
    r"agent|caterer|photographer|florist|supplier|provider|insurer|bank|host|sitter|dog-sitter|guide|"
    r"engineer|"
    r"lead|owner|driver|guardian|sponsor|examiner|reviewer|consultant|surgeon|nurse|specialist|"
    r"hairdresser|mechanic|baker|band|dj|venue|school|gym|club|firm)\b",
    re.IGNORECASE,
)
#: What a booking is for: "reserved the upper room for the party".
PURPOSE: Final = Expression(r"\bfor (?:the|my|our|his|her|their|[\w'’]+['’]s) ((?:[\w-]+ ){0,2}[\w-]+)", re.IGNORECASE)
BOOKED: Final = Expression(
    r"\b(?:reserved|booked|rented|hired|takes? place|held (?:at|in)|is (?:at|in))\b", re.IGNORECASE
)
#: What follows these words is about whom they name: "I rang Dr Aerts and the dentist is now on the 18th".
CONTACT: Final = Expression(
    r"\b(?:rang|called|phoned|texted|e?mailed|asked|begged|spoke (?:to|with)|wrote to)\b", re.IGNORECASE
)
#: Somebody gave the answer that was waited for.
ANSWERED: Final = Expression(
    r"\b(?:said|says|say) (?:yes|no|it's fine|ok(?:ay)?|they|he|she|we)\b|\b(?:agreed|approved|answered|confirmed|"
    r"okayed|"
    r"replied|is fine with|are fine with|gave (?:me|us) the (?:go-ahead|green light)|turned (?:it|us|me) down|"
    r"refused|accepted|rejected|got (?:in|into|"
    r"accepted|(?:an?|the|my|our) (?:\w+ )?(?:place|job|grant|offer|permit|visa|loan|keys)))\b",
)
SETTLED: Final = Expression(
    (
        r"\b(?:reserved|booked|decided|chosen|chose|settled|picked|agreed|takes? place|held (?:at|in)|"
        r"going with|went with|ordered)\b|(?:\bi'?m|\bwe're) (?:re)?(?:painting|doing|making|planting|growing|wearing|"
        r"having|getting|using|building|going for)\b"
    ),
)
WILL_BE: Final = Expression(
    (
        r"\b(?:the|my|our|his|her|their|[\w-]+['’]s)\s+((?:[\w-]+\s){1,3}?)(?:(?:at|in|for|of|"
        r"on) (?:[\w-]+\s){1,3}?)?(?:is|are|will be|becomes?|'ll be|has moved|moved|moves|goes)(?: now| moving)?\b"
        r"|(?:^|\b(?:the|my|our) )([\w-]+)(?:'s|’s| is) going (?:to be )?\w+"
    ),
    re.IGNORECASE,
)
