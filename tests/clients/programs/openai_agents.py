"""OpenAI Agents SDK on chat completions: an agent with a function tool and a session, then a streamed answer."""

import asyncio

from agents import Agent, Runner, SQLiteSession, function_tool, set_default_openai_api

set_default_openai_api("chat_completions")


@function_tool
def ferry_time(island: str) -> str:
    """Return when the ferry leaves."""
    return f"{island} at 9:45"


async def main():
    agent = Agent(name="Harbor", instructions="You help at the harbor.", model="gpt-5-mini", tools=[ferry_time])
    session = SQLiteSession("harbor")
    for question in ("Where does the ferry leave?", "Please look up the ferry.", "And back?"):
        print((await Runner.run(agent, question, session=session)).final_output)
    run = Runner.run_streamed(agent, "Thank you.", session=session)
    async for _ in run.stream_events():
        pass
    print(run.final_output)


asyncio.run(main())
