"""Texts for retrieval, tracking and copying, generated on the device one batch at a time.

A body of filler (words of a topic that changes every 64 tokens) contains records in random order at random positions:
  FACT name value…      a name's value of four tokens; a name may be stated again, and then the last statement counts
  LINK name name        a link of a chain of names
  COPY name span…       a span of 24 tokens
Questions follow the body. A prompt is a body, one question and the token ANSWER; as in any language model, the prefill yields the
first token of the answer, and all others are decoded under the policy.

| task | question | answer | parts |
|---|---|---|---|
| single | FACT name, with a single fact in the body | the value | 1 |
| multikey | the same among many facts | the value | 1 |
| latest | the same, with the name stated three times | its last value | 1 |
| multiquery | FACT and three names | each name and its value | 3 |
| tracking | LINK and the first name of a chain | the four names after it | 4 |
| copying | COPY name | the span | 6 |
"""

from dataclasses import dataclass

import torch
from torch import Tensor

BOS, FACT, LINK, COPY, ASK, ANSWER = range(6)
NAMES, VALUES, FILLER = 16, 272, 528  # first token id of each kind of word
VOCABULARY = 1024
N_NAMES, N_VALUES, TOPIC_WORDS, TOPICS = 256, 256, 16, 31
VALUE, CHAIN, SPAN = 4, 5, 24  # tokens in a value, names in a chain, tokens in a span
TASKS = {"single": 1, "multikey": 1, "latest": 1, "multiquery": 3, "tracking": 4, "copying": 6}  # number of parts of an answer


@dataclass(frozen=True)
class Records:
    """Number of records of each kind in a body."""

    facts: int
    restated: int = 0  # additional facts with the name of the first one
    chains: int = 0
    spans: int = 0

    @property
    def lengths(self) -> list[int]:
        return ([2 + VALUE] * (self.facts + self.restated) + [3] * (self.chains * (CHAIN - 1)) + [2 + SPAN] * self.spans)


@dataclass
class Body:
    """Bodies [B, n]; for each record, ordered by kind, its words and the position of its first word."""

    tokens: Tensor
    names: Tensor  # [B, N_NAMES], shuffled: facts' names, then those of chains, then of spans
    values: Tensor  # [B, facts + restated, VALUE]
    spans: Tensor  # [B, spans, SPAN]
    starts: Tensor  # [B, records]
    records: Records


def make_body(n: int, records: Records, batch: int, generator: torch.Generator) -> Body:
    device = generator.device

    def integers(high: int, *shape: int) -> Tensor:
        return torch.randint(high, (batch, *shape), generator=generator, device=device)

    lengths = torch.tensor(records.lengths, device=device)
    free = n - 1 - int(lengths.sum())
    if free < 0:
        raise ValueError(f"{int(lengths.sum())} tokens of records do not fit into a body of {n} tokens")
    if records.facts + records.chains * CHAIN + records.spans > N_NAMES:
        raise ValueError(f"a body has at most {N_NAMES} names")
    names = NAMES + torch.rand(batch, N_NAMES, generator=generator, device=device).argsort(1)
    values = VALUES + integers(N_VALUES, records.facts + records.restated, VALUE)
    spans = VALUES + integers(N_VALUES, records.spans, SPAN)
    # Records are in random order, with random amounts of filler between them.
    place = torch.rand(batch, len(lengths), generator=generator, device=device).argsort(1)
    gaps = integers(free + 1, len(lengths)).sort(1).values
    in_order = lengths[place]
    starts = torch.empty_like(place).scatter_(1, place, 1 + gaps + in_order.cumsum(1) - in_order)
    topic = integers(TOPICS, -(-n // 64)).repeat_interleave(64, 1)[:, :n]
    tokens = FILLER + topic * TOPIC_WORDS + integers(TOPIC_WORDS, n)
    tokens[:, 0] = BOS
    body = Body(tokens, names, values, spans, starts, records)
    _write(body)
    return body


def _write(body: Body) -> None:
    r, batch = body.records, body.tokens.shape[0]

    def marks(mark: int, count: int) -> Tensor:
        return body.names.new_full((batch, count, 1), mark)

    facts = torch.cat((body.names[:, : r.facts], body.names[:, :1].expand(-1, r.restated)), 1)
    nodes = chains_of(body)
    copied = body.names[:, r.facts + r.chains * CHAIN:][:, : r.spans]
    groups = [torch.cat((marks(FACT, facts.shape[1]), facts[..., None], body.values), 2),
              torch.cat((marks(LINK, r.chains * (CHAIN - 1)), nodes[:, :, :-1].flatten(1)[..., None],
                         nodes[:, :, 1:].flatten(1)[..., None]), 2),
              torch.cat((marks(COPY, r.spans), copied[..., None], body.spans), 2)]
    first = 0
    for words in groups:
        starts = body.starts[:, first: first + words.shape[1], None]
        where = starts + torch.arange(words.shape[2], device=words.device)
        body.tokens.scatter_(1, where.flatten(1), words.flatten(1))
        first += words.shape[1]


def chains_of(body: Body) -> Tensor:
    """Returns the names of the chains, [B, chains, CHAIN]."""
    r = body.records
    return body.names[:, r.facts: r.facts + r.chains * CHAIN].reshape(body.names.shape[0], r.chains, CHAIN)


@dataclass
class Question:
    """A question and its answer; targets: the position of each token of the answer in the body, −1 if the token repeats the
    question."""

    question: Tensor  # [B, q], without ANSWER
    answer: Tensor  # [B, T]
    targets: Tensor  # [B, T]


def ask(body: Body, task: str, number: int = 0) -> Question:
    """Returns a question. number: index of the fact, chain or span in question (multiquery: the first of three facts). The question
    of `latest` is about the restated name."""
    r, batch, device = body.records, body.tokens.shape[0], body.tokens.device
    offsets = torch.arange(SPAN, device=device)

    def mark(*words: int) -> Tensor:
        return torch.tensor(words, device=device).expand(batch, -1)

    def fact(i: int | Tensor) -> tuple[Tensor, Tensor]:
        """Returns the value and its positions."""
        i = torch.full((batch,), i, device=device) if isinstance(i, int) else i
        rows = torch.arange(batch, device=device)
        return body.values[rows, i], body.starts[rows, i, None] + 2 + offsets[:VALUE]

    if task in ("single", "multikey"):
        return Question(torch.cat((mark(ASK, FACT), body.names[:, number, None]), 1), *fact(number))
    if task == "latest":
        stated = torch.cat((body.starts[:, :1], body.starts[:, r.facts: r.facts + r.restated]), 1).argmax(1)
        chosen = torch.where(stated == 0, stated, r.facts + stated - 1)
        return Question(torch.cat((mark(ASK, FACT), body.names[:, :1]), 1), *fact(chosen))
    if task == "multiquery":
        names = body.names[:, number: number + 3]
        found = [fact(number + i) for i in range(3)]
        answer = torch.cat([torch.cat((names[:, i, None], value), 1) for i, (value, _) in enumerate(found)], 1)
        targets = torch.cat([torch.cat((mark(-1), where), 1) for _, where in found], 1)
        return Question(torch.cat((mark(ASK, FACT), names), 1), answer, targets)
    if task == "tracking":
        nodes = chains_of(body)[:, number]
        first = r.facts + r.restated + number * (CHAIN - 1)
        return Question(torch.cat((mark(ASK, LINK), nodes[:, :1]), 1), nodes[:, 1:],
                        body.starts[:, first: first + CHAIN - 1] + 2)
    if task == "copying":
        name = body.names[:, r.facts + r.chains * CHAIN + number, None]
        start = body.starts[:, len(r.lengths) - r.spans + number, None]
        return Question(torch.cat((mark(ASK, COPY), name), 1), body.spans[:, number], start + 2 + offsets)
    raise ValueError(f"unknown task {task}; known: {', '.join(TASKS)}")


@dataclass
class Items:
    """Prompts of one length with one question each. answer [B, T]: the expected tokens, of which all but the last are fed to the
    decode steps. targets [B, T]: the position of each token of the answer in the prompt."""

    prompt: Tensor
    answer: Tensor
    targets: Tensor
    parts: int

    @property
    def steps(self) -> int:
        """Number of decode steps; the prefill yields the first token."""
        return self.answer.shape[1] - 1


def make_items(task: str, context: int, batch: int, generator: torch.Generator) -> Items:
    """Returns prompts of `context` tokens that end with the question and ANSWER."""
    asked = {"multiquery": 6}.get(task, 4)
    many = max(4, context // 64)
    records = {"single": Records(1), "multikey": Records(many), "latest": Records(many // 2, restated=2),
               "multiquery": Records(many // 2 + 1), "tracking": Records(0, chains=max(1, context // 128)),
               "copying": Records(0, spans=max(1, context // 256))}[task]
    body = make_body(context - asked, records, batch, generator)
    q = ask(body, task)
    prompt = torch.cat((body.tokens, q.question, torch.full_like(q.answer[:, :1], ANSWER)), 1)
    return Items(prompt, q.answer, q.targets, TASKS[task])


READ_AFTER = 3  # number of tokens after a record from which a trained model reads its content


def needed(task: str, targets: list[int]) -> list[list[int]]:
    """Returns, for each token of an answer, the positions that a model must be able to attend to: the record that contains the
    token, and the tokens after the record. The eight-layer model reads a fact from the three tokens of filler after it, whose keys
    and values have collected it during prefill; the token itself gets a hundredth of the attention there. targets: as in Items,
    for one item."""
    length, copied = {"tracking": (3, 1), "copying": (2 + SPAN, SPAN)}.get(task, (2 + VALUE, VALUE))  # tokens in a record
    out: list[list[int]] = []
    found = 0  # number of tokens so far that do not repeat the question
    for position in targets:
        if position < 0:
            out.append([])
            continue
        begin = position - 2 - found % copied
        out.append(list(range(begin, begin + length + READ_AFTER)))
        found += 1
    return out


def make_training_batch(n: int, batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Returns texts [B, n] of a mixed body followed by many questions, and a mask of the tokens that are answers [B, n]."""
    draw = int(torch.randint(1 << 30, (1,), generator=generator, device=generator.device))
    if n < 128:  # only a few records fit; a short text trains lookup and tracking
        records = Records(facts=3, chains=1)
        asked = [("multikey", i) for i in range(3)]
    else:
        # The body has one kind of record, or all of them together.
        scale, kind = 1 + draw % max(1, n // 128), draw // 28 % 4
        facts = 3 + 2 * scale if kind in (0, 1) else 0
        records = Records(facts, restated=2 if facts else 0, chains=scale if kind in (0, 2) else 0,
                          spans=max(1, scale // 4) if kind in (0, 3) else 0)
        asked = [("latest", 0), ("multiquery", facts - 3)] if facts else []
        asked += [("multikey", 1 + i) for i in range(min(32, facts - 1))]
        asked += [("copying", i) for i in range(min(4, records.spans))]
    asked += [("tracking", i) for i in range(min(8, records.chains))]
    turn = draw // 64 % len(asked)
    words = {"multiquery": 6 + 3 * (1 + VALUE), "tracking": 4 + CHAIN - 1, "copying": 4 + SPAN}
    # Part of the space left by the records is filler: texts full of questions would train the model to attend only nearby.
    left = max(4 + SPAN if n >= 128 else 4 + VALUE, (n - 1 - sum(records.lengths)) * (1 + draw // 7 % 4) // 4)
    chosen: list[tuple[str, int]] = []
    for task, number in asked[turn:] + asked[:turn]:  # as many as fit after the body
        if words.get(task, 4 + VALUE) <= left:
            chosen.append((task, number))
            left -= words.get(task, 4 + VALUE)
    tail = sum(words.get(task, 4 + VALUE) for task, _ in chosen)
    body = make_body(n - tail, records, batch, generator)
    texts, answers = [body.tokens], [torch.zeros_like(body.tokens, dtype=torch.bool)]
    for task, number in chosen:
        q = ask(body, task, number)
        texts += [q.question, torch.full_like(q.answer[:, :1], ANSWER), q.answer]
        answers += [torch.full_like(part, i == 2, dtype=torch.bool) for i, part in enumerate(texts[-3:])]
    return torch.cat(texts, 1), torch.cat(answers, 1)
