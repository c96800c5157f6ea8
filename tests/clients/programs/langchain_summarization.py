"""LangChain's agent with SummarizationMiddleware over 20 questions: it replaces old messages with its own summaries."""

from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_openai import ChatOpenAI

model = ChatOpenAI(model="gpt-5-mini", use_responses_api=False)
summarizer = SummarizationMiddleware(model=model, trigger=("messages", 8), keep=("messages", 4))
agent = create_agent(model, system_prompt="You are the harbor's assistant.", middleware=[summarizer])
messages = []
for number in range(20):
    messages.append({"role": "user", "content": f"Question {number}: when does ferry {number} leave from the harbor?"})
    messages = agent.invoke({"messages": messages})["messages"]
    print(messages[-1].content)
print(len(messages))
