"""Whether a text is in a language that is read here: English, or none at all.

Known by the script first, then word by word: the little words and everyday words of English against those of eighteen
other languages in the Latin script. Short texts count: "werkt niet" has two words, both of them Dutch.
"""

import re
import unicodedata
from functools import cache, lru_cache
from typing import Final

from cuebook.records.expression import Expression
from cuebook.signals import tone

#: Characters of a text that are looked at.
LOOKED_AT: Final = 2_000
#: The share of its letters that may stand in another script: names and quotations do.
FOREIGN: Final = 0.3
#: Words from which on a text with no English one among them is another language's, though nobody knows which.
UNHEARD_OF: Final = 4

_LETTER: Final = Expression(r"[^\W\d_]")
_WORD: Final = Expression(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
_QUOTED: Final = Expression(r"(?<!\w)(?:'[^'\n]{1,80}'|\"[^\"\n]{1,80}\"|\u201c[^\u201d\n]{1,80}\u201d)(?!\w)")

#: How English words end, and few of other languages.
_ENDING: Final = re.compile(r"...(?:ing|ly|ness|ght|ould|less|able)\Z")

_ENGLISH: Final = """
    a about above after again against all almost already also although always am an and another any anybody anymore
    anyone anything anyway are aren't around as ask asked at away back bad be because been before behind being
    better between both but by call came can can't cannot change check could couldn't day did didn't different do
    does doesn't doing don't done down during each either else end enough error even ever every everyone everything
    fail failed fails far feel few file find fine first fix fixed for found from get gets getting give given go goes
    going gone good got great had has hasn't have haven't having he he's help her here here's hers him his how how's
    however i i'd i'll i'm i've if in instead into is isn't it it'd it'll it's its itself just keep keeps kind knew
    know last later least less let let's like little look looks lot love made make makes making many may maybe me
    mean means might mine more most much must my myself need needs never new next nice no nobody none nope nor not
    nothing now of off often oh on once one only or other others ought our ours out over own people please problem
    put question quite rather read really right run running runs said same saw say says see seem seems set shall she
    should shouldn't show since so some somebody someone something sometimes soon still stop such sure take tell
    than thank thanks that that's the their theirs them then there there's these they they're thing things think
    this those though thought through till time to today together too took tried try trying two under until up upon
    us use used using very wait want wanted was wasn't way we we'd we'll we're we've well went were weren't what
    what's when where whether which while who whole whose why will with within without won't word words work worked
    working works would wouldn't wrong year yes yet you you'd you'll you're you've your yours yourself bug crash
    crashed crashes broken slow fast easy hard stuck useless ty thx pls plz lol lmao idk omg wtf tbh imo smh ugh nah
    yep yeah yup ok okay k hmm huh meh wow damn hey hi hello bye dude bro mate cool awesome amazing perfect terrible
    awful hate annoying cheers gonna wanna gotta kinda dunno im ive dont doesnt didnt cant wont isnt wasnt thats
    whats hes shes theyre youre aint y'all bit tho haha heh yay aww whoa oops dang shit fuck fucking hell god sorry
    welcome sir guys man men woman friend friends name names correct exactly agree completely totally absolutely
    definitely probably actually basically literally obviously apparently hopefully unfortunately finally anyways
    especially usually pretty whatever second third best worst worse big small long short high low old young early
    late full empty open close closed start started starting begin ends write wrote written add added remove delete
    deleted create created move moved send sent copy paste click press push pull load loads save saved saves loading
    export import update updated upgrade install installed download upload login logout sign password account email
    files folder page pages button screen window line lines list table row column data code server client phone app
    website site support order refund invoice price pay paid money home house family kid kids mom dad wife husband
    girl boy baby school job boss team game movie book song music food water car dog cat happy sad mad angry
    beautiful ugly stupid dumb crazy weird funny fun silly smart true false real fake number three four five month
    week hour minute morning night tomorrow yesterday tonight birthday christmas news story video picture watch
    watching play playing listen hear heard called talk talking told speak explain answer understand understood
    confused confusing forget forgot remember hope wish wonder wondering guess suppose believe hurt lost lose win
    won died dead live life world country city place side top bottom left point part sort type
    ha wat u ya yo comment comments human humans looking team underrated real honest
"""

# Everyday words by language: its little words and what is said to a helper. Without diacritics, as many type them.
_OTHERS: Final = {
    "de": """
        aber alle alles also am an auch auf aus bei bin bis bist bitte da danke dann das dass dein dem den der des
        dich die dir doch du ein eine einem einen einer er es etwas fehler fur ganz gar geht gehts genau gibt gut
        habe haben hast hat hatte hallo heute hier ich ihr ihre im immer in ist ja jetzt kann kannst kaputt kein
        keine klappt lauft leider machen mal man mein meine mehr mich mir mit muss nach nein nicht nichts noch
        nochmal nun nur oder ohne schon schlecht sehr sein sich sie sind so soll stimmt super tut uber um und uns
        unter viel vielen vom von vor war warum was weil weiss wenn wer werden wie wieder wir wird wo zu zum zur
        zuruck falsch funktioniert funktionieren schlimm verstehe mist scheisse prima toll ordnung dankeschon ahnung
        wann kommt kommen wurde wurden sollte konnte deutsch vergessen
    """,
    "fr": """
        a ai alors apres au aussi autre aux avant avec beaucoup bien bon bonjour bonsoir bravo c'est ca cela ce ces
        cette chose comme comment dans de deja depuis des donc du elle elles en encore erreur est et etait etre fait
        faire faut fois il ils j'ai j'abandonne je jamais jour l'a la laisse le les leur lui ma mais mal marche me
        meme merci mes moi moins mon n'est ne nest non nos notre nous nul on ou oui par parce parfait pas peu peut
        peux plus pour pourquoi probleme qu'est quand que quel quelle qui quoi rien sa salut sans se ses si soit son
        sont souvent suis sur ta te tellement tes toi ton toujours tous tout toute tres tu un une va veut veux voila
        vos votre vous y d'accord genial plante tomber comprends super nulle trop
    """,
    "es": """
        a ahora al algo alguien antes aqui asi aun aunque ayuda bien buena buenas bueno buenos cada como con cosa
        cual cuando da de del desde despues dias donde dos el ella ellos en entiendo entonces eres error es esa ese
        eso esta estan estas este esto estoy falla favor fue fueron funciona gracias ha hace hacer han hasta hay
        hola hoy igual la las le lento les lo los luego mal mas me mejor menos mi mientras mis mismo mucha muchas
        mucho muchos muy nada ni no nos nosotros nunca o otra otro para peor perfecto pero poco por porque problema
        pues puede puedo que quien quiero rindo roto se sea segun ser si siempre sigue sin sirve sobre solo son soy
        su sus tal tambien tan tanto te tengo tiene todavia todo todos tu tus un una unas uno unos va vamos veces
        vez y ya yo harto mierda asco ayudame entrar
    """,
    "it": """
        a adesso ai al alla alle allo altro ancora anche arrendo avere bene buona buongiorno buono c'e capisco
        capito che chi ci ciao come con cosa cosi da dal dalla dei del della delle dello di dopo dove e ecco era
        errore essere fa fare fatto fino forse funziona gia gli grazie ha hai hanno ho i il in invece io la le lei
        li lo loro lui ma mai male me meglio meno mi mia mille mio molto ne nei nel nella niente no noi non nostro
        nulla o ogni oggi ora per perche perfetto piu po poi possibile posso prima prego problema proprio puo quale
        quando quanto quello questa questi questo qui rotto sbagliato schifo se sei sempre senza si sia sono sta
        stato su sua sul sulla suo te ti tra tu tutti tutto un una uno va vai vi voglio volta inutile blocca
        programma lavoro ottimo molta tempo bello
    """,
    "pt": """
        a agora ainda alem algo alguem ao aos aqui as assim ate bem boa bom com como continua da dar das de depois
        desde desisto deu dia dos e ela ele eles em entao entendi entendo era erro essa esse esta estao estou eu
        falha favor fazer foi funciona funcionou gente ha hoje isso isto ja la legal mais mal mas me melhor menos
        mesmo meu minha muita muito na nada nao nas nem nenhum no nos nossa nosso nunca o obrigada obrigado oi ola
        onde os ou outra outro para pela pelo pior pode por porque pra preciso problema qual quando que quebrado
        quem quero sao se seja sem sempre ser seu sim so sobre sua tambem te tem tenho ter tudo tao tchau toda todo
        todos trava tu um uma vai valeu vez voce voces ajuda certo ficou otimo ruim consigo
    """,
    "nl": """
        aan al alle alleen alles als altijd andere bedankt beetje bent bij bijna dan dank dankjewel dat de deze die
        dit doe doen doet door dus echt een eens en er erg even fout gaan gaat geen geweest goed graag had heb
        hebben heeft heel helaas helemaal het hier hij hoe iets ik in is ja jammer je jij jou jouw jullie kan kapot
        klopt kun kunnen lukt maar maken me meer meteen mij mijn misschien moet moeten naar na nee niet niets nog
        nooit nou nu of om omdat onder ons ook op over snap steeds straks te toch toen uit uur van veel vind voor
        waar waarom want wat we weer weet wel werkt werken wie wij wil worden wordt ze zeer zelf zich zij zijn zo
        zou zonder gedaan idee rotzooi crasht mooi mooie werk slecht duurt
    """,
    "pl": """
        ale ani az bardzo bez bo byc byl byla bylo byly chce ciagle ci co cos czego czemu czesc czy dla dlaczego do
        dobra dobry dobrze dzieki dziekuje dziala dzien gdy gdzie go ich ile im ja jak jako jest jestem jesli juz
        kiedy kto ktora ktory ktore lub ma mam mi mnie moge moj moja moze mozna musi my na nad nam nas nic nie niz
        no o od on ona oni oraz pan pani po pod podczas poniewaz przed przez przy rozumiem sa sam sie skad swietnie
        ta tak taki takze tam te tego tej ten teraz tez to tobie tu tutaj ty tyle tylko tym u w wam was wiec wiem
        wolno wszystko wszystkie z za zawsze ze zeby znow znowu zle gra grane prosze samo poddaje psuje jeszcze
    """,
    "tr": """
        acaba ama ancak anladim anlamadim anlamiyorum artik aslinda ayni bana bazi belki ben beni benim beri bir
        biraz biz bize bu bugun bunu burada cok cunku da daha dahi de degil diye evet galiba gibi gore guzel hala
        hangi harika hata hatta hayir hem hemen hep hepsi her hic hicbir icin ile iste iyi kadar kez ki kim kotu
        lutfen merhaba mi mu nasil ne neden nedir nerede niye oldu olan olarak oldugu oluyor olur ona onlar onu
        sadece sana sen seni senin sey siz sizin sonra surekli su tabii tamam tesekkur tesekkurler tum uzerinde var
        ve verdi vazgectim veya ya yani yapiyor yeni yine yok yoktur calismiyor calisiyor bozuk olmadi olmuyor
    """,
    "sv": """
        aldrig alla allt alltid an annan att av bara bra da dar darfor de den denna det detta dig din du efter eller
        en ett fel fick finns fore for forstar fran fungerar funkar ger gick gor gora ha han hade har hej hela helt
        henne hon hur i igen igar inga ingen inget inte ja jag kan kanske kommer kraschar man med mellan men mer mig
        min mycket nagon nagot nar nej nu och ocksa om oss pa sa samma sedan sig sin ska skulle snart som tack tid
        till tiden tyvarr under ur ut va var varfor vad vara vem vet vi vill varje at ar upp vilken vilket skit
        hjalp
    """,
    "da": """
        af aldrig alle alt altid at blev bare bliver da de dem den denne der deres det dette dig din du efter eller
        en end endnu er et fejl for fordi forsta forstar fra fik ga gar gor ham han har havde hej hele hende her hun
        hvad hvem hver hvis hvor hvordan hvorfor i igen ikke ind ingen intet ja jeg jer kan kunne lige mange man med
        meget men mere mig min mit nar ned nej nogen noget nok nu og ogsa om op os over pa sa sig sin skal som
        stadig tak til tid tiden ud under var ved vi vil ville virker vaere være
    """,
    "no": """
        aldri alle alt altsa av bare ble bli blir da de den denne der det dette din du eller en enn er et etter feil
        fikk for fordi forstar fra funker fungerer gjor gjore ha hadde han har hei her hos hun hva hvem hvis hvor
        hvordan hvorfor ikke ingen ingenting ja jeg kan kanskje kom kunne man mange med meg meget men mer min mitt
        mye na nei noe noen og ogsa om opp oss over pa sa samme seg selv sin skal skjonner skulle som takk til tusen
        ut var ved vi vil ville virker vaere
    """,
    "fi": """
        aina ainakin ei eika en enaa eli emme et etta han he hei hyva hyvin ihan ilman ja jo joka jos kaikki kaikkea
        kanssa kauan kerran kiitos kiitoksia koko koska kuin kun kuka kuinka kyll kylla me mika mikaan mikä miksi
        milloin mina minulla minun minä minulle missa mita mitaan mutta mukaan myos ne nyt ole olen olet on oli
        olivat olla ovat paljon pitaa se sen sina sinä sitä sita tai taas tama tämä te tietaa toimi toimii tulee
        vaan vain vai vaikka viela voi ymmarra virhe rikki aikaa liian hidas huono hyvaa
    """,
    "cs": """
        aby ahoj ale ani asi az bez bude bych byl byla bylo chyba chci co da dekuji dekuju diky do dobre dobry den
        fungovat funguje nefunguje ho i ja jak jako je jeho jeji jen jeste ji jiz jsem jsi jsme jsou jste k kde kdo
        kdy kdyz ktera ktere ktery mam me mi mit mne moc moje muj muze my na nad nam nas ne nebo neco nejde nemam
        nemuzu nerozumim nic nikdy no od on ona oni ono opet pak po pod pokud porad potom prave pred pres pri pro
        proc prosim s se si spatne stale super tady tak take tam te ted tedy ten to tohle tomu toto tu ty u uz v vam
        vas velmi vsak vse vsechno vubec vy z za ze znovu zase pada
    """,
    "hu": """
        aki ami az azt be csak de e egy el en es ez ezt fel hanem hiba hogy igen ilyen is itt jo kell keves ki koszi
        koszonom le legyen lesz ma majd mar meg mert mi miert mikor milyen mind minden mit most mukodik nagy nagyon
        nekem nelkul nem nincs o oda ok olyan ossze rossz s se sem semmi soha szepen szia talan te tud tudom ugy
        utan vagy van vannak viszont volt ertem kerem segitseg kosz lassu
    """,
    "ro": """
        acest aceasta acum ai aici al ale am ar are as asa asta atunci au avea bine buna ca cand care ce cel cine cu
        cum da daca de deci decat deja din doar dupa e ea ei el ele era este eu eroare fara fi fost frumos foarte
        hai il imi in inca inteleg intre insa isi la le lor lui ma mai mea mele merge mereu meu mi mult multa
        multumesc mersi ne niciodata nimic noi nostru nu o ori pana pe pentru poate prea prin sa salut sau se si
        spre sunt tot toate toti tu un una unde unei unor va vreau vrea functioneaza
    """,
    "id": """
        ada adalah agar akan aku anda apa apakah atau bagaimana bagus baik bantuan banyak baru begitu belum benar
        berapa bisa boleh bukan dalam dan dapat dari dengan di dia gagal gak hanya hari harus ini itu jadi jangan
        juga kalau kami kamu karena kasih ke kenapa kita lagi lain lebih maaf mana masih mau mengapa mengerti mereka
        mohon nya oleh pada paham rusak saja salah sama sangat saya sebagai sekarang selalu semua seperti sering sih
        sudah tapi tau tentang terima terus tetapi tidak tolong untuk yang ya yg error terlalu lambat sekali
        aplikasi masuk
    """,
    "vi": """
        anh ban bi cac cai cam chi cho chua co con cua cung da dang day de den di duoc em gi hay hoat hon khi khong
        la lai lam loi mot nay nen neu nguoi nhieu nhu nhung no o oi on qua ra rat roi sao se tai theo the thi toi
        tot trong tu va van vay voi
    """,
    "hi": """
        aap aur bahut bhai bhi dhanyavaad galat hai hain ho hoon hua ka kaam kaise kar karo karta ke ki kiya ko koi
        kuch kya kyon kyu kyun lekin main mein mera mere mujhe na nahi nahin phir raha rahi samajh se shukriya theek
        tum wala yaar yeh aa gaya gayi
    """,
}

# Letters with marks that English has in names and borrowed words as well; every other one tells of another language.
_BORROWED: Final = frozenset("éèêëçñüöïáíóâôÉ")


def reads_english(text: str) -> bool:
    """Tell whether a text is English, or in no language at all: code, numbers, names, emoji. About 0.5 µs a word."""
    beginning = text[:LOOKED_AT]
    letters = _LETTER.findall(beginning)
    if not letters:
        return True
    if not beginning.isascii():
        latin = sum(letter.isascii() or _is_latin(letter) for letter in letters)
        if latin < (1 - FOREIGN) * len(letters):
            return False
    found = _WORD.findall(_QUOTED.sub(" ", beginning)) or _WORD.findall(beginning)
    spoken = [word for word in found if word.isascii() or _is_latin(word[0])]
    return _weigh([word.replace("\u2019", "'").lower() for word in spoken])


def _weigh(words: list[str]) -> bool:
    lists, more = _lists(), _more()
    english = marked = 0.0
    others: dict[str, float] = {}
    for word in words:
        plain, strange = _unmarked(word)
        marked += strange
        languages = lists.get(plain, ())
        if "en" not in languages and (plain in more or _ENDING.search(plain)):
            english += 0.5
        for language in languages:
            if language == "en":
                english += 1
            else:
                others[language] = others.get(language, 0.0) + (1 if len(plain) > 1 else 0.5)
    other = max(others.values(), default=0.0) + marked
    if other > english:
        return False
    return english > 0 or len(words) < UNHEARD_OF


@lru_cache(maxsize=1 << 13)
def _unmarked(word: str) -> tuple[str, float]:
    """Give a word without diacritics, and how much those speak against English."""
    if word.isascii():
        return word, 0.0
    plain = unicodedata.normalize("NFKD", word.replace("ı", "i").replace("ł", "l").replace("ß", "ss"))
    plain = "".join(each for each in plain if not unicodedata.combining(each))
    strange = any(not each.isascii() and each not in _BORROWED for each in unicodedata.normalize("NFC", word))
    return plain.replace("æ", "ae").replace("ø", "o").replace("œ", "oe"), 1.0 if strange else 0.0


@cache
def _lists() -> dict[str, tuple[str, ...]]:
    """Give the languages of each everyday word."""
    found: dict[str, tuple[str, ...]] = {}
    for language, words in {"en": _ENGLISH, **_OTHERS}.items():
        for word in set(words.split()):
            found[word] = (*found.get(word, ()), language)
    return found


@cache
def _more() -> frozenset[str]:
    """Give further words of English: those that weigh. Each counts half: another language may have it too."""
    from vader.data.lexicon import LEXICON

    return frozenset(LEXICON) | tone.WORDS.keys()


@lru_cache(maxsize=4096)
def _is_latin(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith(("LATIN", "FULLWIDTH LATIN"))
