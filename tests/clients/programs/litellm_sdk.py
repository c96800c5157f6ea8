"""LiteLLM's SDK: history with the answer's own message object, a tool call, and a streamed answer on two wires."""

import json

import litellm

tools = [
    {
        "type": "function",
        "function": {
            "name": "ferry_time",
            "description": "Return when the ferry leaves.",
            "parameters": {"type": "object", "properties": {"island": {"type": "string"}}, "required": ["island"]},
        },
    }
]
for model in ("openai/gpt-5-mini", "anthropic/claude-sonnet-5"):
    messages = [{"role": "system", "content": f"You help at the harbor with {model}."}]
    for question in ("Where does the ferry leave?", "Please look up the ferry."):
        messages.append({"role": "user", "content": question})
        message = litellm.completion(model=model, messages=messages, tools=tools).choices[0].message
        if message.tool_calls:
            messages.append(message)
            for call in message.tool_calls:
                island = json.loads(call.function.arguments)["island"]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{island} at 9:45"})
            message = litellm.completion(model=model, messages=messages, tools=tools).choices[0].message
        messages.append(message)
        print(message.content)
    messages.append({"role": "user", "content": "And back?"})
    stream = litellm.completion(model=model, messages=messages, tools=tools, stream=True)
    print("".join(chunk.choices[0].delta.content or "" for chunk in stream))
