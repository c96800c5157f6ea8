"""Extract the user's own words from a message: remove code, quotations, logs, stack traces, addresses and paths.

Machine output and quoted people do not show the user's mood, however many errors they name.
"""

from typing import Final

from cuebook.records.expression import Expression

#: Characters of a message that are read, at its beginning and at its end.
READ: Final = 2_000
_LOOKED_AT: Final = 20_000  # likewise, when whole lines are dropped

_FENCE: Final = ("```", "~~~")
_INLINE: Final = Expression(r"`[^`\n]{1,400}`")
_ADDRESS: Final = Expression(
    r"(?:https?|ftp|file|s3|git|ssh)://\S+|\bwww\.\S+|\b[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]{1,64}"
)
#: Quoted speech: two words or more in quotation marks. A single word is a name, or ironic.
_QUOTED: Final = Expression(
    r"(?<!\w)\"[^\"\n]{3,1200}\"(?!\w)|\u201c[^\u201c\u201d]{3,1200}\u201d|\u201e[^\u201c-\u201e]{3,1200}[\u201c\u201d]"
    r"|\u00ab[^\u00ab\u00bb]{3,1200}\u00bb"
)
_PATH: Final = Expression(
    r"(?<![\w:])(?:[A-Za-z]:\\|~?/|\.{1,2}/)[\w.+-]+(?:[/\\][\w.+-]*)*|"
    r"\b[\w-]{1,80}(?:/[\w.-]{1,80}){1,12}\.\w{1,5}\b|"
    r"\b[\w-]+\.(?:py|js|ts|tsx|jsx|java|go|rs|c|h|cpp|cs|rb|php|sh|sql|md|txt|log|json|ya?ml|toml|ini|cfg|csv|html|css|"
    r"xml)\b(?::\d+)*"
)
#: Names in code style: snake_case, camelCase, a.call(), --options.
_NAME: Final = Expression(
    r"\b\w+_\w+\b(?:\(\))?|\b[a-z]+[A-Z]\w*\b(?:\(\))?|\b[A-Z][a-z]+(?:[A-Z][a-z]+)*(?:Error|Exception|Warning)\b"
    r"|\b\w{1,80}(?:\.\w{1,80}){0,6}\(\)|(?<!\S)--?[a-z][\w-]*(?:=\S*)?"
)
#: A machine-printed line: a frame or head of a stack trace, a log line, a shell prompt.
_PRINTED: Final = Expression(
    r"Traceback \(most recent|File \"[^\"]*\", line \d|at [\w.$<>]+ ?\(|[\w.]*(?:Error|Exception|Warning): |"
    r"Caused by: |"
    r"\[?(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d)[T ,\]]|"
    r"\[?(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL)\]?[: ]\s?\S|"
    r"\w+ ERR! |error(?:\[\w+\]|\s?TS\d+)?: |\$ \S|>>> |[~^]+$|fatal: |make(?:\[\d+\])?: |thread '\w+' panicked|"
    r"\+\d+ |@@ "
)


def spoken(text: str) -> str:
    """Return the user's own words of a message, in order, without the middle of a very long one."""
    text = _ends("\n".join(_lines(_ends(text, _LOOKED_AT))), READ)  # removes pasted text first: the rest may be short
    if "`" in text:
        text = _INLINE.sub(" it ", text)
    if '"' in text or "\u201c" in text or "\u201e" in text or "\u00ab" in text:
        text = _QUOTED.sub(lambda result: " it " if " " in result[0][1:-1].strip() else result[0], text)
    if "://" in text or "@" in text or "www." in text:
        text = _ADDRESS.sub(" ", text)
    if "/" in text or "\\" in text or "." in text:
        text = _PATH.sub(" it ", text)
    return _NAME.sub(" it ", text)


def _ends(text: str, each: int) -> str:
    return text if len(text) <= 2 * each else f"{text[:each]}\n{text[-each:]}"


def _lines(text: str) -> list[str]:
    """Return the lines without code blocks, quoted lines, and machine-printed lines."""
    remaining: list[str] = []
    fence = ""
    indented = False  # inside the frames of a stack trace
    for line in text.split("\n"):
        bare = line.strip()
        if fence:
            fence = "" if bare.startswith(fence) else fence
        elif bare.startswith(_FENCE):
            fence = bare[:3]
        elif bare.startswith(">") and not bare.startswith((">:", ">.<", ">_<", ">>>")):
            indented = False
        elif _PRINTED.match(bare) or (indented and line.startswith(("  ", "\t"))):
            indented = True
        else:
            indented = False
            remaining.append(line)
    return remaining
