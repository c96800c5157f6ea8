"""The words that are about nothing, and the forms of irregular verbs: what topics are read with."""

from typing import Final

#: Words that are about nothing: function words, everyday verbs, time words, chat words.
STOP: Final = frozenset(
    """
    a an the this that these those there here and or but nor so if then than as of at by for with about against
    between into through during before after above below to from up down in out on off over under again further once
    all any both each few more most other some such no not only own same too very just now also even still yet
    already ever never always often sometimes really quite pretty actually basically i me my mine myself we us our
    ours ourselves you your yours yourself he him his himself she her hers herself it its itself they them their
    theirs themselves who whom whose which what when where why how is am are was were be been being have has had
    having do does did doing done will would shall should can could may might must ought i'm i've i'll i'd we're
    we've we'll we'd you're you've you'll it's that's there's he's she's they're they've don't doesn't didn't isn't
    aren't wasn't weren't won't can't couldn't wouldn't shouldn't haven't hasn't hadn't let's get gets got getting
    gotten go goes going went gone come comes came coming make makes made making take takes took taken taking put
    puts say says said tell told think thinks thought know knows knew known want wants wanted need needs needed like
    likes liked look looks looked see sees saw seen give gives gave given use uses used keep keeps kept let lets
    seem seems try tries tried thing things stuff way lot lots bit kind sort one ones something anything everything
    nothing someone anyone everyone today tomorrow yesterday tonight morning afternoon evening night week weeks
    month months year years day days time times last next ago soon later early late ok okay yeah yes yep no nope oh
    well hey hi hello thanks thank please sorry sure maybe perhaps probably right good great nice fine bad new old
    big small little long first second finally turns turned out instead anymore longer rather update remember remind
    note forget btw fyi around roughly per every half past quarter noon midnight o'clock they'll she'll he'll it'll
    that'll set back right because since while until though although however much many another else us unless
    whether either neither per via
    """.split()
)
#: Verbs of change and settling: they say that something changed, not what it is about.
GENERIC: Final = frozenset(
    """
    move change switch cancel postpon reschedul push liv leav rais shift delay drop decid pick choos chose chosen
    book confirm end start begin call correct scrap swap replac settl land agre plan happen mean work find stick
    forget mention rebook wait upgrad chang mov updat rais cut bump extend
    """.split()
)
#: Function words of other languages that English does not have: they tell a German or Spanish text from an English one.
FOREIGN: Final = frozenset(
    """
    der das und ist ich nicht ein eine einen einem einer mit auf für im dem den wir sie sind war hat haben auch zu
    le les est une je nous vous et dans pour avec sur du qui sont el los las que es una con por para como muy mi
    tu il lo gli che sono della di un een het van ik niet wij zijn och att det som är jag og på ikke jeg en na nie
    się że w não uma
    """.split()
)
#: What one may ask to be answered in, and what prices are shown in, as alternatives of a pattern.
LANGUAGES: Final = (
    "english|french|german|dutch|spanish|italian|portuguese|polish|russian|ukrainian|turkish|arabic|hebrew|greek|chinese|"
    "mandarin|japanese|korean|hindi|swedish|norwegian|danish|finnish|czech|hungarian|romanian|catalan|flemish|afrikaans"
)
CURRENCIES: Final = "euros?|dollars?|pounds?|francs?|yen|kroner|crowns?|rupees?|eur|usd|gbp|chf"
IRREGULAR: Final = {
    "bought": "buy",
    "paid": "pay",
    "sent": "send",
    "wrote": "write",
    "written": "write",
    "rang": "ring",
    "spoke": "speak",
    "spoken": "speak",
    "met": "meet",
    "sold": "sell",
    "found": "find",
    "chose": "choose",
    "chosen": "choose",
    "began": "begin",
    "begun": "begin",
    "left": "leave",
    "brought": "bring",
    "drove": "drive",
    "driven": "drive",
    "ate": "eat",
    "eaten": "eat",
    "taught": "teach",
    "built": "build",
    "lent": "lend",
    "spent": "spend",
    "ran": "run",
    "swam": "swim",
    "flew": "fly",
    "flown": "fly",
    "slept": "sleep",
    "wore": "wear",
    "worn": "wear",
    "held": "hold",
    "children": "child",
    "kids": "kid",
    "wives": "wife",
    "knives": "knife",
    "people": "person",
    "men": "man",
    "women": "woman",
    "picked": "pick",
    "quit": "quit",
    "handed": "hand",
    "filed": "file",
    "mailed": "mail",
    "planted": "plant",
    "signed": "sign",
    "ordered": "order",
}
