"""The largest sizes that make sense: beyond them a library aborts, or memory and time run out without a word."""

VOCABULARY = 1 << 20  # tokens: the largest in use have a quarter of that
IMAGE = 1 << 14  # pixels of height or width
TOKENS = 1 << 40  # of a window, a block or a sequence
EXAMPLES = 1 << 32  # of a set that is made
PROCESSES = 1 << 10


def at_most(name: str, value: int, most: int) -> None:
    if value > most:
        raise ValueError(f"{name} is {value:,}; expected at most {most:,}.")
