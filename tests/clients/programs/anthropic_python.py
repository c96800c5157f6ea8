"""Anthropic's library: questions with history and a cache mark, a streamed answer and a tool call."""

from anthropic import Anthropic

client = Anthropic()
system = [{"type": "text", "text": "You are the harbor's assistant.", "cache_control": {"type": "ephemeral"}}]
tools = [
    {
        "name": "ferry_time",
        "description": "Return when the ferry leaves.",
        "input_schema": {"type": "object", "properties": {"island": {"type": "string"}}, "required": ["island"]},
    }
]
history = []


def ask(content):
    history.append({"role": "user", "content": content})
    answer = client.messages.create(
        model="claude-sonnet-5", max_tokens=500, system=system, messages=history, tools=tools
    )
    history.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]})
    return answer


print(ask("Where does the ferry leave?").content[0].text)
answer = ask([{"type": "text", "text": "Please look up the ferry.", "cache_control": {"type": "ephemeral"}}])
results = [
    {"type": "tool_result", "tool_use_id": block.id, "content": f"{block.input['island']} at 9:45"}
    for block in answer.content
    if block.type == "tool_use"
]
print(ask(results).content[0].text)
history.append({"role": "user", "content": "And back?"})
with client.messages.stream(
    model="claude-sonnet-5", max_tokens=500, system=system, messages=history, tools=tools
) as stream:
    print("".join(stream.text_stream))
