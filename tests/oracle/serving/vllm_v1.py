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
    blocks: list = field(default_factory=list)  # of each group of layers, those of its tokens in order; None: given back
    keys: list = field(default_factory=list)  # of the content up to the end of each block
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

    def find(self, request: Request, tokens: int, windows: list) -> list:
        """The longest prefix that every group has, of a group with a window only its last blocks."""
        keys = self.keys(request, tokens // self.block) if self.caching else []
        for length in range(len(keys), -1, -1):
            found = [self.have(keys[:length], group, window) for group, window in enumerate(windows)]
            if all(one is not None for one in found):
                return found
        raise AssertionError('an empty prefix is always there')

    def have(self, keys: list, group: int, window: int):
        first = max(0, len(keys) - math.ceil((window - 1) / self.block)) if window else 0
        blocks = [self.cache.get((group, key)) for key in keys[first:]]
        return [None] * first + [next(iter(b)) for b in blocks] if all(blocks) else None

    def keys(self, request: Request, blocks: int) -> list:
        keys = request.keys
        for index in range(len(keys), blocks):
            tokens = tuple(request.token(i) for i in range(index * self.block, (index + 1) * self.block))
            keys.append(hash((keys[-1] if keys else None, tokens)))
        return keys[:blocks]

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
        for b in filter(lambda b: b is not None, blocks):
            if self.users[b] == 0:
                self.free.pop(b)
            self.users[b] += 1

    def give_back(self, blocks: list) -> None:
        for b in filter(lambda b: b is not None, reversed(blocks)):
            self.users[b] -= 1
            if self.users[b] == 0:
                self.free[b] = None

    def name(self, request: Request, tokens: int) -> None:
        full = tokens // self.block if self.caching else 0
        for i, key in enumerate(self.keys(request, full)):
            for group, blocks in enumerate(request.blocks if i >= request.named else []):
                b = blocks[i]
                if b is not None:
                    self.content[b] = group, key
                    self.cache.setdefault(self.content[b], {})[b] = None
        request.named = max(request.named, full)


@dataclass
class Step:
    start: int
    end: int
    sampled: list  # requests that get a token


class Engine:
    def __init__(self, load: dict):
        self.rules, self.times = load['rules'], load['times']
        # One for each group of layers; 0: it keeps all tokens. Such groups come first here, and give back their blocks last.
        self.windows = [0] * self.rules['others'] + [self.rules['window']] * self.rules['groups']
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

    def lacking(self, blocks: list, tokens: int) -> list:
        return [max(0, self.needed(tokens) - len(one)) for one in blocks]

    def leave_window(self, request: Request) -> None:
        for blocks, window in zip(request.blocks, self.windows, strict=True):
            left = max(0, request.computed - window + 1) // self.rules['block'] if window else 0
            self.pool.give_back(blocks[:left])
            blocks[:left] = [None] * left

    def give_all_back(self, request: Request) -> None:
        others = self.rules['others']
        for blocks in request.blocks[others:] + request.blocks[:others]:
            self.pool.give_back(blocks)

    def preempt(self) -> Request:
        victim = self.running.pop()
        self.give_all_back(victim)
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
            self.leave_window(request)
            while sum(self.lacking(request.blocks, request.computed + new)) > len(self.pool.free):
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
        for blocks, lacking in zip(request.blocks, self.lacking(request.blocks, request.computed + new), strict=True):
            blocks += self.pool.take(lacking)
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
            hits = self.pool.find(request, request.length() - 1, self.windows)
            unused = sum(b is not None and self.pool.users[b] == 0 for one in hits for b in one)
            cached = len(hits[0]) * self.rules['block']
            new = self.cut(request.length() - cached)
            left = int(self.rules['watermark'] * self.rules['blocks']) if self.running else 0
            lacking = sum(self.lacking(hits, cached + new))
            if self.rules['full_prompt_gate']:
                lacking = max(lacking, sum(max(0, self.most(request.length(), window) - len(hits[0])) for window in self.windows))
            if lacking + unused + left > len(self.pool.free):
                return
            self.running.append(self.waiting.popleft())
            for one in hits:
                self.pool.use(one)
            request.blocks, request.named, request.computed = hits, len(hits[0]), cached
            request.to_read = request.length()
            if request.preemptions == 0:
                request.hit_tokens = cached
            request.recomputed_tokens += max(0, request.lost - cached)
            self.add(request, new)

    def most(self, tokens: int, window: int) -> int:
        """Blocks of a group that a sequence of so many tokens ever has at a time."""
        most = self.needed(tokens)
        return min(most, self.needed(window - 1 + self.rules['max_num_batched_tokens']) + 1) if window else most

    def impossible(self, request: Request) -> bool:
        tokens = len(request.prompt) + request.wanted
        blocks = sum(self.most(tokens - 1, window) for window in self.windows)
        return tokens > self.rules['max_context'] or blocks > self.rules['blocks']

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
                self.give_all_back(request)
                (self.running if request in self.running else self.waiting).remove(request)
                self.ended.append(request)
