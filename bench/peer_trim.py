"""Peer program of the assemble benchmark: trims a file's messages to the tokens of our window, once per input line."""

import json
import sys
import time
from pathlib import Path

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, trim_messages  # type: ignore[import-not-found]
from langchain_core.messages.utils import count_tokens_approximately  # type: ignore[import-not-found]


def main() -> None:
    """Load the messages, then print the CPU seconds of one trim for each input line."""
    rows = json.loads(Path(sys.argv[1]).read_text())
    kept = int(sys.argv[2])
    messages: list[BaseMessage] = [
        AIMessage(text) if role == "assistant" else HumanMessage(text) for role, text in rows
    ]
    most = count_tokens_approximately(messages[-kept:])
    for _ in sys.stdin:
        began = time.process_time()
        trim_messages(messages, max_tokens=most, strategy="last", token_counter=count_tokens_approximately)
        print(time.process_time() - began, flush=True)


if __name__ == "__main__":
    main()
