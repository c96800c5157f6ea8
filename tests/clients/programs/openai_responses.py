"""OpenAI's library with the Responses API: an answer, one that continues it, a tool call and a streamed answer."""

from openai import OpenAI

client = OpenAI()
tool = {
    "type": "function",
    "name": "ferry_time",
    "parameters": {"type": "object", "properties": {"island": {"type": "string"}}, "required": ["island"]},
}
first = client.responses.create(model="gpt-5-mini", instructions="Be brief.", input="Where does the ferry leave?")
print(first.output_text)
second = client.responses.create(model="gpt-5-mini", input="How long does it take?", previous_response_id=first.id)
print(second.output_text)
third = client.responses.create(
    model="gpt-5-mini", input="Please look up the ferry.", previous_response_id=second.id, tools=[tool]
)
results = [
    {"type": "function_call_output", "call_id": item.call_id, "output": "At 9:45"}
    for item in third.output
    if item.type == "function_call"
]
with client.responses.stream(model="gpt-5-mini", input=results, previous_response_id=third.id, tools=[tool]) as stream:
    print("".join(event.delta for event in stream if event.type == "response.output_text.delta"))
