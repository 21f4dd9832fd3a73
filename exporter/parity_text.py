"""The text of the parity check: prose, a table of facts, code and a dialogue, written for this purpose."""

TEXT = '''The tide turned shortly after noon, and the harbour filled from the north. Small boats that had leaned on
the mud all morning straightened one by one, as if someone were walking along the quay and setting them upright. By two
o'clock the ferry could reach its berth again; eleven passengers went aboard, and a dog that belonged to none of them.

A lighthouse needs three things: a tower high enough to be seen, a lamp bright enough to be noticed, and a pattern that
cannot be mistaken for any other. The first is stone, the second is fuel, and the third is an agreement between people
who may never meet. Between 1820 and 1880 the lamps changed from oil to gas and then to electric arcs, while the
agreement stayed the same.

```python
def moving_average(values: list[float], width: int) -> list[float]:
    """Returns the mean of each window of `width` neighbouring values."""
    if width < 1 or width > len(values):
        raise ValueError(f"width must be between 1 and {len(values)}, not {width}")
    total = sum(values[:width])
    result = [total / width]
    for index in range(width, len(values)):
        total += values[index] - values[index - width]
        result.append(total / width)
    return result
```

Question: A train leaves at 9:40 and arrives at 12:15. How long does the journey take?
Answer: From 9:40 to 12:00 is two hours and twenty minutes, and another fifteen minutes follow, so the journey takes two
hours and thirty-five minutes.

To make bread, mix 500 g of flour with 10 g of salt and 7 g of dry yeast, add 320 ml of lukewarm water, and knead the
dough until it no longer sticks to the bowl. Let it rest for an hour under a damp cloth. Shape it, let it rise again,
and bake it at 230 degrees for thirty-five minutes. It is done when it sounds hollow as you knock on its underside.
'''
