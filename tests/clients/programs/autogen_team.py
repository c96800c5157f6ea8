"""AutoGen: an assistant with a tool, then a team of two assistants in turns."""

import asyncio

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient


async def ferry_time(island: str) -> str:
    """Return when the ferry leaves."""
    return f"{island} at 9:45"


async def main():
    info = {"vision": False, "function_calling": True, "json_output": True, "family": "gpt", "structured_output": True}
    model = OpenAIChatCompletionClient(model="gpt-5-mini", model_info=info)
    agent = AssistantAgent("harbor", model, tools=[ferry_time], reflect_on_tool_use=True, system_message="You help.")
    for question in ("Where does the ferry leave?", "Please look up the ferry.", "And back?"):
        print((await agent.run(task=question)).messages[-1].content)
    writer = AssistantAgent("writer", model, system_message="You write.")
    critic = AssistantAgent("critic", model, system_message="You judge.")
    team = RoundRobinGroupChat([writer, critic], termination_condition=MaxMessageTermination(5))
    for message in (await team.run(task="Write about the harbor.")).messages:
        print(message.source, message.content)
    await model.close()


asyncio.run(main())
