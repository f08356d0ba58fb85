"""What plain English means for the tests: words that are not used, and how long a sentence may be.

Pages, help texts and messages are held to the same lists.
"""

import re

# Words of a sentence. A message is read in haste, and a colon or a semicolon ends a thought of it.
LONGEST, MEAN = 35, 20
LONGEST_SAID, MEAN_SAID = 20, 8
# Other words for things that have one already.
WORDS = (
    *("agenda", "arena", "aside", "changeover", "desk", "doubt", "flight recorder", "guest", "helm", "homes", "lender"),
    *("lookout", "seat", "slab", "speed-up", "story", "stories", "stride", "successor", "teller", "turnover"),
    *("vacancy", "vacancies", "wish", "wishes"),
)
# Turns of phrase that have to be read twice.
PHRASES = (
    *(
        "are told",
        "as is known",
        "cannot travel",
        "come up with",
        "goes on by itself",
        "held to be",
    ),
    *("is another", "is had", "leave out it", "let be", "never has room", "no more use", "nobody knows", "of late"),
    *("of no use", "serves on", "so does one", "such without", "takes and gives", "was asked for", "were it to"),
    *("which counts", "whoever"),
)
BANNED = re.compile(rf"\b({'|'.join((*WORDS, *PHRASES))})(s|d|ed|ing)?\b", re.IGNORECASE)

_WORD = re.compile(r"\w")


def words_of(sentence: str) -> int:
    return sum(bool(_WORD.search(word)) for word in sentence.split())
