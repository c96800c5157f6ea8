"""Recognize an upstream's error for a prompt that exceeds its model's context window, and parse the limit in it."""

import re
from typing import Final

import msgspec
from msgspec import Struct

#: Statuses of such errors: 500 is that of older llama.cpp servers.
STATUSES: Final = frozenset({400, 413, 422, 500})

_NUMBER = r"(\d[\d,_]*)"

#: Wordings of the providers.
_WORDINGS = (
    r"context_length_exceeded|exceed_context_size|model_context_window_exceeded",
    r"maximum (?:context|prompt|model) length|context length (?:is|of) only|max context length",  # OpenAI, vLLM
    r"exceed[a-z]* (?:the |this |its )?(?:model'?s? )?(?:available )?context (?:window|size|length|limit)",
    r"configured (?:limit|context size)",  # OpenAI
    r"prompt (?:is )?too long|input is too long|exceeds max length",  # Anthropic, Ollama, Bedrock, Z.ai
    r"exceeds the maximum number of tokens",  # Gemini
    r"too large for model with",  # Mistral
    r"range of input length",  # Qwen
    r"longer than the model'?s context length|maximum allowed input length",  # Together, Poolside
    r"(?:greater|more) than the context length|context the overflows|loaded with context length",  # LM Studio
    r"context window exceeds limit|exceeded model token limit",  # MiniMax, Kimi
    r"max_new_tokens`? must be|cannot exceed \d+ - received",  # Text Generation Inference, Cohere
    r"reduce the length of the (?:messages|prompt)|token count of \d+ exceeds",  # Groq, Cerebras, Copilot
)
_TOO_LONG = re.compile("|".join(_WORDINGS), re.IGNORECASE)
#: Wordings of rate limits, which may use the same words.
_RATE = re.compile(r"per (?:minute|hour|day)|rate[ _]?limit|\bTPM\b|throttl|quota|please wait", re.IGNORECASE)

#: Limits of a prompt alone, then of a prompt with its answer.
_PROMPT_LIMITS = tuple(
    re.compile(wording + _NUMBER, re.IGNORECASE)
    for wording in (
        r"configured limit of ",
        r"number of tokens allowed\s*\(?",
        r"input length should be \[\d+, ?",
        r"maximum prompt length is ",
        r"token count of [\d,]+ exceeds the limit of ",
        r"maximum allowed input length of ",
    )
)
_LIMITS = (
    re.compile(rf"with {_NUMBER} maximum context", re.IGNORECASE),
    *(
        re.compile(wording + _NUMBER, re.IGNORECASE)
        for wording in (
            r"\d(?: tokens)? > ",
            r'n_ctx"?: ?',
            r"context (?:length|size|window)(?: is| of|:)?(?: only)? ?\(?",
            r"context limit:? (?:is |of )?\(?(?!\d+ \+)",
            r"token limit: ",
            r"must be <= ",
            r"cannot exceed ",
            r"limit is ",
        )
    ),
)
#: The length of the prompt, by the provider's count.
_LENGTHS = (
    re.compile(
        rf"{_NUMBER} (?:tokens )?(?:in the messages|in your prompt|of text input|from the input|input tokens|`inputs`)",
        re.IGNORECASE,
    ),
    *(
        re.compile(wording + _NUMBER, re.IGNORECASE)
        for wording in (
            r'n_prompt_tokens"?: ?',
            r"resulted in ",
            r"too long: ",
            r"context limit: (?=\d+ \+)",
            r"token count (?:of )?\(?",
            r"(?:prompt contains|prompt has|request contains|received|requested(?::| about)?|current length is) ",
            r"(?:input|request|input length) \(?",
        )
    ),
)


class TooLong(Struct, frozen=True):
    """An error for a prompt that is too long: the limit, and the length by the provider's count; None = not named."""

    limit: int | None = None
    prompt_only: bool = False  # the limit does not include the answer
    length: int | None = None


def read_too_long(status: int, body: bytes) -> TooLong | None:
    """Return what an error answer says about a prompt that is too long, or None for any other error."""
    text = _text(body)
    if status not in STATUSES or not _TOO_LONG.search(text) or _RATE.search(text):
        return None
    length = _first(_LENGTHS, text)
    if alone := _first(_PROMPT_LIMITS, text):
        return TooLong(alone, prompt_only=True, length=length)
    return TooLong(_first(_LIMITS, text), length=length)


def _text(body: bytes) -> str:
    """Return an error's text, in JSON without escaped characters."""
    try:
        return msgspec.json.encode(msgspec.json.decode(body)).decode()
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")


def _first(wordings: tuple[re.Pattern[str], ...], text: str) -> int | None:
    """Return the number that the first matching wording names."""
    found = next((match for wording in wordings if (match := wording.search(text))), None)
    return int(found[1].replace(",", "").replace("_", "")) if found else None
