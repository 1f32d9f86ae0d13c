"""Who asks what: how many clients at once, how often each, which prompts, and how long a wait is acceptable.

In: numbers, a request to take the settings from. Out: each client's next question. Knows no engine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from inference.errors import WrongArguments
from inference.events import Request

MOST_CLIENTS = 64  # each client of a server has a process here
QUESTIONS = (
    "May I see the menu?", "How much is the lamb biryani?", "Two chicken biryani and a couple of drinks, please.", "What do you have without meat?",
    "Is the fish fresh today, and how is it made?", "One dal, three naan and a cola to take away.", "Do you have something sweet for the children?",
    "We are six. Which dishes would you put in the middle of the table, if two of us eat no meat and one takes it very hot?",
    "No lemonade after all, a mango lassi instead.", "Can I pay by card?", "What goes well with the mutton korma?", "A plate of momos, please, and the bill.",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """`clients`: how many at once, one level after the other; `rounds`: answers to each of them, who asks again once answered.

    `prompts`: what they ask, in turn. `leave_every`: every so many questions one is left in the middle of its answer, 0 for none.
    """

    clients: tuple[int, ...]
    rounds: int
    prompts: tuple[str, ...]
    request: Request
    max_first_token_s: float | None = None
    max_total_s: float | None = None
    leave_every: int = 0

    def check(self) -> None:
        """Raise WrongArguments, before anything is loaded, for what can't be measured."""
        if not self.clients or not all(1 <= n <= MOST_CLIENTS for n in self.clients) or len(set(self.clients)) < len(self.clients):
            raise WrongArguments(f"--clients takes numbers from 1 to {MOST_CLIENTS}, each once, such as 1,2,4,8.")
        if self.rounds < 1:
            raise WrongArguments(f"--rounds must be 1 or more, not {self.rounds}.")
        if self.leave_every < 0:
            raise WrongArguments(f"--leave-every must be 1 or more (0 for none), not {self.leave_every}.")
        for flag, limit in (("--max-first-token", self.max_first_token_s), ("--max-total", self.max_total_s)):
            if limit is not None and not (0 < limit < math.inf):
                raise WrongArguments(f"{flag} must be a number of seconds above 0, not {limit:g}.")
        if len(self.prompts) < max(self.clients):
            raise WrongArguments(
                f"{max(self.clients)} clients at once need as many different prompts; there are {len(self.prompts)}. Add some, or ask by fewer."
            )
        for prompt in self.prompts:
            self.asks(prompt).check()

    def asks(self, prompt: str) -> Request:
        """The question with this prompt."""
        return replace(self.request, prompt=prompt)

    @property
    def longest(self) -> Request:
        """The question with the longest prompt, to get warm by."""
        return self.asks(max(self.prompts, key=len))

    @property
    def repeats_prompts(self) -> bool:
        """Whether there are fewer prompts than questions."""
        return len(self.prompts) < sum(self.clients) * self.rounds

    def question(self, clients: int, client: int, number: int) -> Request:
        """The `number`-th question (from 0) of a `client` (from 0) among so many: at no time are two clients at the same prompt."""
        before = self.rounds * sum(n for n in self.clients if n < clients) % len(self.prompts)
        own = (*self.prompts[before:], *self.prompts[:before])[client::clients]
        return self.asks(own[number % len(own)])

    def leaves(self, clients: int, client: int, number: int) -> bool:
        """Whether the client leaves that question's answer in its middle."""
        return bool(self.leave_every) and (number * clients + client + 1) % self.leave_every == 0


def usual_prompts(count: int) -> tuple[str, ...]:
    """So many different prompts of several lengths."""
    return tuple(f"Hello, this is table {n + 1}. {QUESTIONS[n % len(QUESTIONS)]}" for n in range(count))
