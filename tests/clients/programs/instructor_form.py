"""Instructor: answers of a type, by tool call and by JSON Schema."""

import instructor
from openai import OpenAI
from pydantic import BaseModel


class Ferry(BaseModel):
    island: str
    minutes: int


for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    client = instructor.from_openai(OpenAI(), mode=mode)
    messages = [{"role": "system", "content": "You help at the harbor."}]
    for question in ("Which ferry leaves first?", "Which ferry leaves next?"):
        messages.append({"role": "user", "content": f"{question} ({mode.value})"})
        ferry = client.chat.completions.create(model="gpt-5-mini", response_model=Ferry, messages=messages)
        messages.append({"role": "assistant", "content": ferry.model_dump_json()})
        print(ferry)
