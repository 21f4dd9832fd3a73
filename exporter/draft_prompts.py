"""What drafts are tried on: two prompts each of chat, code and mathematics, written for this purpose."""

_FUNCTION = '''```python
def merge_intervals(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merges intervals that overlap, in ascending order."""
```'''
PROMPTS = (
    "Which three things should I check before I buy a used bicycle? Explain each of them in a few sentences.",
    "Write a short letter to my neighbours. Tell them that our kitchen is renovated next week, and apologise for that.",
    "Write a Python function that reads a CSV file and returns the mean of every numeric column as a dictionary.",
    f"Complete this function and explain how it works:\n\n{_FUNCTION}",
    "A baker makes 48 rolls an hour and sells five sixths of them for 40 cents each. What does he earn in three hours?",
    "A tank holds 240 litres. One pipe fills it in 8 hours, another empties it in 12. When is it full with both open?",
)
