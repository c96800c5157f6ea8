"""mem0: facts of a conversation are extracted, stored and searched; its calls of the model are utility calls."""

from mem0 import Memory
from openai import OpenAI

store = {"provider": "qdrant", "config": {"path": "vectors", "embedding_model_dims": 1536}}
memory = Memory.from_config({"vector_store": store, "llm": {"provider": "openai", "config": {"model": "gpt-5-mini"}}})
client = OpenAI()
history = []
for question in ("My ferry leaves at 9:45.", "When does my ferry leave?"):
    found = [each["memory"] for each in memory.search(question, filters={"user_id": "ann"})["results"]]
    history.append({"role": "user", "content": question})
    system = [{"role": "system", "content": f"Facts: {found}"}]
    answer = client.chat.completions.create(model="gpt-5-mini", messages=system + history).choices[0].message.content
    history.append({"role": "assistant", "content": answer})
    memory.add(history[-2:], user_id="ann")
    print(found, answer)
