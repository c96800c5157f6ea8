"""OpenAI's library: questions with history, a streamed answer, a tool call, JSON, and the Responses API."""

import json

from openai import OpenAI

client = OpenAI()
history = [{"role": "system", "content": "You are the harbor's assistant."}]
tools = [
    {
        "type": "function",
        "function": {
            "name": "ferry_time",
            "parameters": {"type": "object", "properties": {"island": {"type": "string"}}, "required": ["island"]},
        },
    }
]


def ask(question, **more):
    history.append({"role": "user", "content": question})
    message = client.chat.completions.create(model="gpt-5-mini", messages=history, **more).choices[0].message
    if message.tool_calls:
        calls = [call.model_dump() for call in message.tool_calls]
        history.append({"role": "assistant", "content": None, "tool_calls": calls})
        for call in message.tool_calls:
            island = json.loads(call.function.arguments)["island"]
            history.append({"role": "tool", "tool_call_id": call.id, "content": f"{island} at 9:45"})
        message = client.chat.completions.create(model="gpt-5-mini", messages=history, **more).choices[0].message
    history.append({"role": "assistant", "content": message.content})
    print(message.content)


ask("Where does the ferry leave?")
ask("How long does it take?", temperature=0.2, seed=7)
ask("Please look up the ferry.", tools=tools)

history.append({"role": "user", "content": "And back?"})
with client.chat.completions.create(
    model="gpt-5-mini", messages=history, stream=True, stream_options={"include_usage": True}
) as stream:
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
history.append({"role": "assistant", "content": text})
print(text)

history.append({"role": "user", "content": "Give me the island as JSON."})
schema = {"type": "object", "properties": {"island": {"type": "string"}}, "required": ["island"]}
form = {"type": "json_schema", "json_schema": {"name": "island", "schema": schema}}
print(
    client.chat.completions.create(model="gpt-5-mini", messages=history, response_format=form)
    .choices[0]
    .message.content
)
