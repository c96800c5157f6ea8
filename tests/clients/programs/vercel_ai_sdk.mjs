// Vercel AI SDK on two wires: text with history, tool steps, and a streamed answer.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";

const { OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL } = process.env;
const openai = createOpenAICompatible({ name: "harbor", baseURL: OPENAI_BASE_URL, apiKey: OPENAI_API_KEY });
const anthropic = createAnthropic({ baseURL: `${ANTHROPIC_BASE_URL}/v1` });
const inputSchema = jsonSchema({ type: "object", properties: { island: { type: "string" } }, required: ["island"] });
const execute = async ({ island }) => `${island} at 9:45`;
const tools = { ferry_time: tool({ description: "Return when the ferry leaves.", inputSchema, execute }) };

for (const model of [openai("gpt-5-mini"), anthropic("claude-sonnet-5")]) {
  const system = `You help at the harbor with ${model.modelId}.`;
  const messages = [];
  for (const content of ["Where does the ferry leave?", "Please look up the ferry."]) {
    messages.push({ role: "user", content });
    const result = await generateText({ model, system, messages, tools, stopWhen: stepCountIs(3) });
    messages.push(...result.response.messages);
    console.log(result.text);
  }
  messages.push({ role: "user", content: "And back?" });
  const stream = streamText({ model, system, messages, tools });
  console.log(await stream.text);
}
