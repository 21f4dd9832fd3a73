"""Several answers at once inside an asyncio program: python stream_async.py BUNDLE PROMPT..."""

import asyncio
import sys

from pilotfish import Engine

MOST_SECONDS = 60


async def answer(engine: Engine, prompt: str, number: int) -> None:
    """Each token as it comes. Cancelling this task ends the generation within a round and frees its cache."""
    async for event in engine.astream(prompt, max_new_tokens=64):
        print(f"{number}: {event.text!r}", flush=True)  # an app would send it on


async def main(bundle: str, prompts: list[str]) -> None:
    """The answers take turns round by round; whatever else the program does runs meanwhile."""
    with Engine(bundle, num_sequences=len(prompts)) as engine:
        answers = [answer(engine, prompt, number) for number, prompt in enumerate(prompts)]
        await asyncio.wait_for(asyncio.gather(*answers), MOST_SECONDS)


asyncio.run(main(sys.argv[1], sys.argv[2:]))
