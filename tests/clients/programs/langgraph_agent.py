"""LangGraph: a graph with a tool node, a checkpointer and two threads, on OpenAI's and Anthropic's wires."""

from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def ferry_time(island: str) -> str:
    """Return when the ferry leaves."""
    return f"{island} at 9:45"


for chat in (ChatOpenAI(model="gpt-5-mini"), ChatAnthropic(model="claude-sonnet-5")):
    model = chat.bind_tools([ferry_time])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state, model=model: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([ferry_time]))
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    graph.set_entry_point("model")
    app = graph.compile(checkpointer=InMemorySaver())
    for thread in ("one", "two"):
        config = {"configurable": {"thread_id": thread}}
        for question in (
            f"Where does ferry {thread} leave, {type(chat).__name__}?",
            "Please look up the ferry.",
            "And back?",
        ):
            print(app.invoke({"messages": [("user", question)]}, config)["messages"][-1].text)
        for part, _ in app.stream({"messages": [("user", "Thank you.")]}, config, stream_mode="messages"):
            print(part.text, end="|")
        print()
