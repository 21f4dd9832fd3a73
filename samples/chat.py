"""A conversation that streams its answers: python chat.py BUNDLE, then one message a line."""

import sys

from pilotfish import Engine

messages: list[dict[str, str]] = []
with Engine(sys.argv[1]) as engine:
    for line in sys.stdin:
        messages.append({"role": "user", "content": line.strip()})
        with engine.stream_chat(messages, max_new_tokens=64) as stream:
            for event in stream:
                print(event.text, end="", flush=True)
            print()
            messages.append({"role": "assistant", "content": stream.result().text})
