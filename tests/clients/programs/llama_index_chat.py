"""LlamaIndex: a chat engine with a memory buffer, a function agent with a tool, and a streamed answer."""

import asyncio
import os

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.llms.openai_like import OpenAILike

llm = OpenAILike(
    model="gpt-5-mini",
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
    is_chat_model=True,
    is_function_calling_model=True,
    context_window=100_000,
)
engine = SimpleChatEngine.from_defaults(llm=llm, system_prompt="You help at the harbor.")
for question in ("Where does the ferry leave?", "How long does it take?"):
    print(engine.chat(question).response)
print("".join(engine.stream_chat("And back?").response_gen))


def ferry_time(island: str) -> str:
    """Return when the ferry leaves."""
    return f"{island} at 9:45"


async def main():
    agent = FunctionAgent(tools=[ferry_time], llm=llm, system_prompt="You look things up.")
    memory = ChatMemoryBuffer.from_defaults(llm=llm)
    for question in ("Please look up the ferry.", "Thank you."):
        print(str(await agent.run(question, memory=memory)))


asyncio.run(main())
