from typing import Any

from openai import OpenAI

from sandmesh import BaseSandbox

client = OpenAI()
messages: list[Any] = [{"role": "user", "content": "How many primes are below 10,000?"}]
with BaseSandbox() as box:
    tools = box.as_tools("openai")
    while True:
        choice = client.chat.completions.create(model="gpt-5-mini", messages=messages, tools=tools).choices[0]
        messages.append(choice.message)
        if not choice.message.tool_calls:
            break
        messages += [tools.reply(call) for call in choice.message.tool_calls]
print(choice.message.content)
