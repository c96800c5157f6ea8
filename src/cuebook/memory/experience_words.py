"""How much a word says of what a text is about, where a handful of texts is all there is to count it in."""

from functools import cache
from typing import Final

from cuebook.memory.vocabulary import STOP
from cuebook.memory.words import words

#: Share of a word's weight that stays: of one every piece of advice begins with, and of one of everyday English.
FRAMING_SHARE: Final = 0.1
EVERYDAY_SHARE: Final = 0.3

_FRAMING: Final = """
    use used using when if whenever user users customer customers client person people somebody someone ask asks asked
    asking request requests want wants wanted need needs help question questions task tasks case situation require
    requires involve involves about related mention mentions mentioned talk talks give gives make makes get gets work
    works do does start set thing things way new good problem problems issue issues please tell know see let show say
    several many some long time old
"""
# The commonest English nouns, verbs and adjectives that begin no advice: two texts share them without being about the
# same thing ("print", "last", "change", "plan").
_EVERYDAY: Final = """
    able account across act action add address age air allow alone answer appear area arm art author bank base become
    begin believe best bit black blue board body book boy break bring brother build building business buy call car
    carry catch cause center central certain chance change charge child choose city class clear close code cold color
    come common community company complete consider contain continue control copy cost country couple course cover
    create cut dark data date deal death decide deep deliver describe design detail develop difference different
    difficult dinner direct doctor document dog door draw dream drive drop due early east easy eat edge education effect
    effort end energy enjoy enough enter entire event example experience explain eye face fact fail fall family far fast
    father fear feel few field figure file fill film final find fine finish fire fit floor follow food foot force form
    former free friend front full game general girl glass goal ground group grow guess half hand hang happen happy hard
    head health hear heart heat heavy high history hold home hope hot hour house huge human hundred idea identify image
    imagine include increase inside island item job join judge jump keep key kid kill kitchen lamp land language large
    laugh law lay lead learn leave left leg less letter level library lie life light line link list listen live local
    location lose lost loud love low machine main maintain manage map mark market matter meal mean measure meet member
    memory message middle mind minute miss model modern moment money month morning mother mouth move movie music name
    national natural nature near necessary never night note notice number occur occurred offer office officer open
    operate operation operations option order organize outside own page paper parent part particular party pass past
    pattern pay perform phone pick picture piece place plan plant play point police poor position possible post power
    prepare present press pretty price print private probably process produce product program project protect prove
    provide public pull purpose push quality quick quickly raise range rate reach read ready real realize reason receive
    recent record red reduce regular relate release remain remember remove repair repeat report represent rest result
    return reveal rich rise road role room row rule run safe save scene school science sea search season seat second
    section seem sell send sense series serious serve service settle share shop short shot side sign simple simply
    single sister sit site size skill skin sleep slow small smile social society sometimes soft sound source south space
    speak special speed spend staff stage stand standard state stay step stick stop store story street strong student
    study style subject success sudden suffer suggest summer sun supply support sure surface table teach teacher team
    term test text thank thought thousand threat threaten title today together top total touch toward town track trade
    train travel treat tree trip trouble true trust turn type understand unit update value various view visit voice wait
    walk wall war warm watch water wear week weight west white whole wide wife wind window winter wish wonder wood word
    world worry write wrong yard year young
"""


def share_of(word: str) -> float:
    """Give the share of its weight that a stemmed word keeps, in (0, 1]."""
    framing, everyday = _stemmed()
    return FRAMING_SHARE if word in framing else EVERYDAY_SHARE if word in everyday else 1.0


@cache
def _stemmed() -> tuple[frozenset[str], frozenset[str]]:
    framing = {stem for text in (_FRAMING, " ".join(STOP)) for stem in words(text)}
    return frozenset(framing), frozenset(words(_EVERYDAY)) - framing
