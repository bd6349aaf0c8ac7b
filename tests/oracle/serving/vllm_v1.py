"""The scheduler of vLLM V1 step by step, token by token, as the rules of its releases describe it."""

import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field


@dataclass
class Request:
    id: int
    arrival: int
    prompt: list  # identities of tokens
    wanted: int  # outputs
    answer: object  # identity of the outputs as a whole
    outputs: int = 0  # whose step has ended
    in_flight: int = 0  # outputs that are being sampled
    computed: int = 0
    blocks: list = field(default_factory=list)
    named: int = 0  # leading blocks that are in the cache
    lost: int = 0
    scheduled: int | None = None
    first_token: int | None = None
    last_token: int | None = None
    rejected: bool = False
    preemptions: int = 0
    hit_tokens: int = 0
    recomputed_tokens: int = 0

    def token(self, position: int):
        length = len(self.prompt)
        return self.prompt[position] if position < length else (self.answer, position - length)

    def length(self) -> int:
        return len(self.prompt) + self.outputs + self.in_flight


class Pool:
    """Blocks with their users and content. Those without user are given out in the order of the free list."""

    def __init__(self, count: int, block: int, caching: bool):
        self.block, self.caching = block, caching
        self.users = [0] * count
        self.content: list = [None] * count
        self.free: OrderedDict = OrderedDict((b, None) for b in range(count))
        self.cache: dict = {}  # content up to the end of a block: blocks that have it, in the order of their entry

    def find(self, request: Request, tokens: int) -> list:
        found: list = []
        before = None
        while self.caching and (len(found) + 1) * self.block <= tokens:
            before = self.key(request, len(found), before)
            blocks = self.cache.get(before)
            if not blocks:
                break
            found.append(next(iter(blocks)))
        return found

    def key(self, request: Request, index: int, before):
        return before, tuple(request.token(i) for i in range(index * self.block, (index + 1) * self.block))

    def take(self, count: int) -> list:
        taken = []
        for _ in range(count):
            b, _ = self.free.popitem(last=False)
            if self.content[b] is not None:
                self.cache[self.content[b]].pop(b)
                self.content[b] = None
            self.users[b] = 1
            taken.append(b)
        return taken

    def use(self, blocks: list) -> None:
        for b in blocks:
            if self.users[b] == 0:
                self.free.pop(b)
            self.users[b] += 1

    def give_back(self, blocks: list) -> None:
        for b in reversed(blocks):
            self.users[b] -= 1
            if self.users[b] == 0:
                self.free[b] = None

    def name(self, request: Request, tokens: int) -> None:
        while self.caching and (request.named + 1) * self.block <= tokens:
            i = request.named
            before = None
            for j in range(i):
                before = self.key(request, j, before)
            b = request.blocks[i]
            self.content[b] = self.key(request, i, before)
            self.cache.setdefault(self.content[b], {})[b] = None
            request.named += 1


@dataclass
class Step:
    start: int
    end: int
    sampled: list  # requests that get a token


class Engine:
    def __init__(self, load: dict):
        self.rules, self.times = load['rules'], load['times']
        self.pool = Pool(self.rules['blocks'], self.rules['block'], self.rules['prefix_caching'])
        self.arrivals = deque(self.made(i, one) for i, one in enumerate(load['requests']))
        self.waiting: deque = deque()
        self.running: list = []
        self.ended: list = []
        self.flying: deque = deque()
        self.now = 0

    @staticmethod
    def made(number: int, one: dict) -> Request:
        prompt = [(('named', key), i) for key, tokens in one['content'] for i in range(tokens)][:one['prompt_tokens']]
        prompt += [(('prompt', number), i) for i in range(one['prompt_tokens'] - len(prompt))]
        answer = ('named', one['answer_key']) if one['answer_key'] else ('answer', number)
        return Request(number, one['arrival'], prompt, one['output_tokens'], answer)

    def run(self) -> list:
        while True:
            while self.arrivals and self.arrivals[0].arrival <= self.now:
                self.waiting.append(self.arrivals.popleft())
            if len(self.flying) < self.rules['in_flight'] and self.schedule():
                continue
            if self.flying:
                self.finish(self.flying.popleft())
            elif self.arrivals:
                self.now = max(self.now, self.arrivals[0].arrival)
            else:
                assert not self.waiting and not self.running
                assert len(self.pool.free) == self.rules['blocks']
                return self.ended

    def needed(self, tokens: int) -> int:
        return math.ceil(tokens / self.rules['block'])

    def preempt(self) -> Request:
        victim = self.running.pop()
        self.pool.give_back(victim.blocks)
        victim.lost = victim.computed
        victim.blocks, victim.named, victim.computed = [], 0, 0
        victim.preemptions += 1
        self.waiting.appendleft(victim)
        return victim

    def schedule(self) -> bool:
        """Composes a step; returns whether there is anything to run."""
        self.budget = self.rules['max_num_batched_tokens']
        self.work: list = []  # request, tokens that it had, new tokens, whether it is read
        preempted = False
        index = 0
        while index < len(self.running) and self.budget > 0:
            request = self.running[index]
            if request.outputs + request.in_flight >= request.wanted:
                index += 1
                continue
            new = self.cut(request.length() - request.computed)
            stopped = False
            while self.needed(request.computed + new) - len(request.blocks) > len(self.pool.free):
                preempted = True
                if self.preempt() is request:
                    stopped = True
                    break
            if stopped:
                break
            self.add(request, new)
            index += 1
        if not preempted:
            self.admit()
        if not self.work:
            return False
        self.launch()
        return True

    def cut(self, tokens: int) -> int:
        if self.rules['long_prefill_token_threshold'] > 0:
            tokens = min(tokens, self.rules['long_prefill_token_threshold'])
        return min(tokens, self.budget)

    def add(self, request: Request, new: int) -> None:
        lacking = self.needed(request.computed + new) - len(request.blocks)
        request.blocks += self.pool.take(max(0, lacking))
        reads = request.computed < request.to_read
        self.work.append((request, request.computed, new, reads))
        request.computed += new
        # Tokens that are still being sampled have no content yet.
        self.pool.name(request, min(request.computed, len(request.prompt) + request.outputs))
        self.budget -= new

    def admit(self) -> None:
        while self.waiting:
            request = self.waiting[0]
            if self.impossible(request):
                request.rejected = True
                request.scheduled = request.first_token = request.last_token = self.now
                self.ended.append(self.waiting.popleft())
                continue
            if len(self.running) == self.rules['max_num_seqs'] or self.budget == 0:
                return
            hits = self.pool.find(request, request.length() - 1)
            unused = sum(self.pool.users[b] == 0 for b in hits)
            cached = len(hits) * self.rules['block']
            new = self.cut(request.length() - cached)
            whole = request.length() if self.rules['full_prompt_gate'] else cached + new
            left = int(self.rules['watermark'] * self.rules['blocks']) if self.running else 0
            if self.needed(whole) - len(hits) + unused + left > len(self.pool.free):
                return
            self.running.append(self.waiting.popleft())
            self.pool.use(hits)
            request.blocks, request.named, request.computed = list(hits), len(hits), cached
            request.to_read = request.length()
            if request.preemptions == 0:
                request.hit_tokens = cached
            request.recomputed_tokens += max(0, request.lost - cached)
            self.add(request, new)

    def impossible(self, request: Request) -> bool:
        tokens = len(request.prompt) + request.wanted
        return tokens > self.rules['max_context'] or self.needed(tokens - 1) > self.rules['blocks']

    def launch(self) -> None:
        time = self.times['base']
        sampled = []
        for request, had, new, reads in self.work:
            if reads:
                time += self.times['read'] * new
            else:
                time += self.times['sequence'] + self.times['context'] * (had + new)
            if request.computed == request.length():
                sampled.append(request)
        start = max([self.now, *(step.end for step in self.flying)])
        for request in sampled:
            request.in_flight += 1
        for request, *_ in self.work:
            if request.scheduled is None:
                request.scheduled = start
        self.flying.append(Step(start, start + time, sampled))

    def finish(self, step: Step) -> None:
        self.now = step.end
        for request in step.sampled:
            request.in_flight -= 1
            request.outputs += 1
            if request.first_token is None:
                request.first_token = self.now
            if request.outputs == request.wanted:
                request.last_token = self.now
                self.pool.give_back(request.blocks)
                (self.running if request in self.running else self.waiting).remove(request)
                self.ended.append(request)
