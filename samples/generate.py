"""Text in, text out, as it is generated: python generate.py BUNDLE PROMPT."""

import sys

from pilotfish import Engine

bundle, prompt = sys.argv[1:]
with Engine(bundle) as engine, engine.stream(prompt, max_new_tokens=64) as stream:
    for event in stream:
        print(event.text, end="", flush=True)
    stats = stream.stats
print(f"\n{stats.num_new_tokens} tokens, {stats.num_accepted} of {stats.num_drafted} drafted ones accepted")
