"""Errors of providers for a prompt that is too long, as their servers send them."""

import json

import pytest

from cuebook.wire.too_long import TooLong, read_too_long


def openai(message: str, code: str | None = "context_length_exceeded") -> bytes:
    """Return an error in the format of OpenAI and most compatible servers."""
    error = {"message": message, "type": "invalid_request_error", "param": "messages", "code": code}
    return json.dumps({"error": error}).encode()


def anthropic(message: str) -> bytes:
    """Return an error in Anthropic's format."""
    error = {"type": "invalid_request_error", "message": message}
    return json.dumps({"type": "error", "error": error, "request_id": "req_1"}).encode()


GEMINI = "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."
LLAMA = {"code": 400, "message": "the request exceeds the available context size, try increasing it",
         "type": "exceed_context_size_error", "n_prompt_tokens": 9034, "n_ctx": 8192}  # fmt: skip
OPENROUTER = (
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 137812 tokens (133716 of "
    'text input, 4096 in the output). Please reduce the length of either one, or use the "middle-out" transform.'
)
VLLM = (
    "You passed 5000 input tokens and requested 1000 output tokens. However, the model's context length is only 4096 "
    "tokens, resulting in a maximum input length of 3096 tokens. Please reduce the length of the input prompt."
)
MISTRAL = "Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length"
ERRORS: dict[str, tuple[bytes, TooLong]] = {
    "OpenAI": (openai(
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 8545 tokens. Please "
        "reduce the length of the messages."), TooLong(8192, length=8545)),
    "OpenAI and DeepSeek, with the answer": (openai(
        "This model's maximum context length is 128000 tokens. However, you requested 130096 tokens (126000 in the "
        "messages, 4096 in the completion). Please reduce the length of the messages or completion."),
        TooLong(128000, length=126000)),
    "OpenAI, input tokens": (openai(
        "Input tokens exceed the configured limit of 272,000 tokens. Your messages resulted in 300,010 tokens. Please "
        "reduce the length of the messages."), TooLong(272000, prompt_only=True, length=300010)),
    "OpenAI Responses": (openai(
        "Your input exceeds the context window of this model. Please adjust your input and try again."), TooLong()),
    "Anthropic": (anthropic("prompt is too long: 213462 tokens > 200000 maximum"), TooLong(200000, length=213462)),
    "Anthropic, escaped by a gateway": (
        anthropic("prompt is too long: 213462 tokens > 200000 maximum").replace(b">", b"\\u003e"),
        TooLong(200000, length=213462)),
    "Anthropic, with the answer": (anthropic(
        "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or "
        "`max_tokens` and try again"), TooLong(200000, length=188240)),
    "Gemini": (json.dumps([{"error": {"code": 400, "message": GEMINI, "status": "INVALID_ARGUMENT"}}]).encode(),
        TooLong(1048575, prompt_only=True, length=1196265)),
    "Gemini, without the length": (json.dumps({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message":
        "The input token count exceeds the maximum number of tokens allowed 1048576."}}).encode(),
        TooLong(1048576, prompt_only=True)),
    "Mistral": (json.dumps({"object": "error", "type": "invalid_request_prompt", "code": "3051", "message": MISTRAL})
        .encode(), TooLong(32768, length=65673)),
    "Qwen": (openai("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
        "invalid_parameter_error"), TooLong(129024, prompt_only=True)),
    "OpenRouter": (openai(OPENROUTER, None), TooLong(131072, length=133716)),
    "vLLM": (openai(VLLM, None), TooLong(4096, length=5000)),
    "SGLang": (openai("Input length (265330) exceeds model's maximum context length (262144).", None),
        TooLong(262144, length=265330)),
    "llama.cpp": (json.dumps({"error": LLAMA}).encode(), TooLong(8192, length=9034)),
    "llama.cpp, in words": (openai("request (9034 tokens) exceeds the available context size (8192 tokens)", None),
        TooLong(8192, length=9034)),
    "xAI": (json.dumps({"code": "Client specified an invalid argument", "error":
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens."}).encode(),
        TooLong(131072, prompt_only=True, length=537812)),
    "Together": (openai(
        "The input (265330 tokens) is longer than the model's context length (262144 tokens).", None),
        TooLong(262144, length=265330)),
    "Text Generation Inference": (json.dumps({"error":
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens and "
        "512 `max_new_tokens`", "error_type": "validation"}).encode(), TooLong(4096, length=4000)),
    "Kimi": (openai("Your request exceeded model token limit: 262144 (requested: 300000)", None),
        TooLong(262144, length=300000)),
    "Groq": (openai("Please reduce the length of the messages or completion."), TooLong()),
    "Cerebras": (openai(
        "Please reduce the length of the messages or completion. Current length is 9063 while limit is 8192"),
        TooLong(8192, length=9063)),
    "Bedrock": (b'{"message":"Input is too long for requested model."}', TooLong()),
    "Cohere": (b'{"message":"too many tokens: number of tokens in the prompt cannot exceed 4081 - received 4292"}',
        TooLong(4081, length=4292)),
    "LM Studio": (openai(
        "Trying to keep the first 5000 tokens when context the overflows. However, the model is loaded with context "
        "length of only 4096 tokens, which is not enough.", None), TooLong(4096)),
    "MiniMax": (openai("invalid params, context window exceeds limit (2013)", None), TooLong()),
    "Ollama": (openai("prompt too long; exceeded max context length by 4096 tokens", None), TooLong()),
    "Copilot": (openai("prompt token count of 145000 exceeds the limit of 128000", "model_max_prompt_tokens_exceeded"),
        TooLong(128000, prompt_only=True, length=145000)),
}  # fmt: skip


@pytest.mark.parametrize(("body", "error"), ERRORS.values(), ids=ERRORS)
def test_the_wording_of_each_provider_is_recognized(body: bytes, error: TooLong) -> None:
    assert read_too_long(400, body) == error


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Rate limit reached for gpt-4o on tokens per min (TPM): Limit 30000, Used 20000, Requested 15000."),
        (413, "Request too large on tokens per minute (TPM): Limit 6000. Please reduce the length of the messages."),
        (400, "Throttling error: Too many tokens, please wait before trying again."),
        (400, "Invalid value for 'temperature': 3."),
        (400, "max_tokens is too large: 9000. This model supports at most 4096 completion tokens."),
        (401, "maximum context length is 10 tokens"),
        (200, "maximum context length is 10 tokens"),
    ],
)  # fmt: skip
def test_other_errors_are_not_too_long(status: int, message: str) -> None:
    assert read_too_long(status, openai(message, None)) is None


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[" * 100_000, b"null", b'{"error": {}}'])
def test_unreadable_errors_are_not_too_long(body: bytes) -> None:
    assert read_too_long(400, body) is None
