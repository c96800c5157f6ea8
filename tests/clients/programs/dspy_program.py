"""DSPy: a chain of thought, and a chat with history."""

import os

import dspy

dspy.configure(
    lm=dspy.LM(
        "openai/gpt-5-mini", api_base=os.environ["OPENAI_BASE_URL"], cache=False, max_tokens=16000, temperature=1.0
    )
)
print(dspy.ChainOfThought("question -> answer")(question="Where does the ferry leave?"))


class Chat(dspy.Signature):
    question: str = dspy.InputField()
    history: dspy.History = dspy.InputField()
    answer: str = dspy.OutputField()


chat = dspy.Predict(Chat)
turns = []
for question in ("When does the ferry leave?", "And back?", "Thank you."):
    answer = chat(question=question, history=dspy.History(messages=turns)).answer
    turns.append({"question": question, "answer": answer})
    print(answer)
