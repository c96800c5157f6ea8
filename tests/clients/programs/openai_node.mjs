// OpenAI's library for Node: history with the answers' own messages, a tool call and a streamed answer.
import OpenAI from "openai";

const client = new OpenAI();
const messages = [{ role: "system", content: "You help at the harbor." }];
const parameters = { type: "object", properties: { island: { type: "string" } }, required: ["island"] };
const tools = [{ type: "function", function: { name: "ferry_time", parameters } }];

for (const question of ["Where does the ferry leave?", "Please look up the ferry."]) {
  messages.push({ role: "user", content: question });
  let { message } = (await client.chat.completions.create({ model: "gpt-5-mini", messages, tools })).choices[0];
  if (message.tool_calls) {
    messages.push(message);
    for (const call of message.tool_calls) {
      messages.push({ role: "tool", tool_call_id: call.id, content: "At 9:45" });
    }
    message = (await client.chat.completions.create({ model: "gpt-5-mini", messages, tools })).choices[0].message;
  }
  messages.push(message);
  console.log(message.content);
}
messages.push({ role: "user", content: "And back?" });
let text = "";
for await (const chunk of await client.chat.completions.create({ model: "gpt-5-mini", messages, stream: true })) {
  text += chunk.choices[0]?.delta.content ?? "";
}
console.log(text);
