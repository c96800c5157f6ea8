"""Pydantic AI: an agent with a tool and its history, a streamed answer, and an answer of a type."""

import asyncio

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

agent = Agent(OpenAIChatModel("gpt-5-mini"), instructions="You help at the harbor.")


@agent.tool_plain
def ferry_time(island: str) -> str:
    """Return when the ferry leaves."""
    return f"{island} at 9:45"


class Ferry(BaseModel):
    island: str
    minutes: int


async def main():
    history = []
    for question in ("Where does the ferry leave?", "Please look up the ferry."):
        result = await agent.run(question, message_history=history)
        history = result.all_messages()
        print(result.output)
    async with agent.run_stream("And back?", message_history=history) as stream:
        print(await stream.get_output())
        history = stream.all_messages()
    print((await agent.run("Fill the form.", message_history=history, output_type=Ferry)).output)


asyncio.run(main())
