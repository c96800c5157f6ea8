"""smolagents: an agent that calls tools until it has a final answer, and a second question in the same memory."""

from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def ferry_time(island: str) -> str:
    """Return when the ferry leaves.

    Args:
        island: the name of the island
    """
    return f"{island} at 9:45"


agent = ToolCallingAgent(tools=[ferry_time], model=OpenAIModel("gpt-5-mini"), verbosity_level=0, max_steps=4)
print(agent.run("Please look up the ferry."))
print(agent.run("Please look up the ferry back.", reset=False))
