"""A replica as the scheduler of docs/scheduler.md runs it, without a step for each pass: passes that are alike
are one event."""

import collections
import heapq


class Request:
    """A turn on its way. `left` are the prompt's tokens that have not been run."""

    __slots__ = ("session", "turn", "arrived", "first_token", "left", "cached", "replica", "lost")

    def __init__(self, session, turn, arrived):
        self.session = session
        self.turn = turn  # its number in the session
        self.arrived = arrived  # seconds
        self.first_token = None
        self.left = 0
        self.cached = 0
        self.replica = None
        self.lost = None  # seconds, when a replica was lost with it

    @property
    def prompt(self):
        return self.session.turns[self.turn].prompt

    @property
    def answer(self):
        return self.session.turns[self.turn].answer


class Replica:
    """Continuous batching: requests join and leave between passes. A pass has a row for each request that
    decodes, and rows of prompts behind them, prompts taking turns in being first.

    `ends` is when the passes that run now are over, seconds; None while there are none. Whoever waits for that
    calls pass_over(), unless `ends` has changed meanwhile."""

    def __init__(self, times):
        self.times = times
        self.done = 0  # passes
        self.decoding = []  # heap of (the number of passes when it ends, order, request)
        self.prompts = collections.deque()
        self.waiting = collections.deque()
        self.order = 0
        self.held_tokens = 0  # of requests that run, at their ends
        self.context = 0  # tokens of requests that decode, now
        self.cache = collections.OrderedDict()  # session: tokens, the least recently used first
        self.cached_tokens = 0
        self.busy = 0.0  # seconds of passes that were counted
        self.began, self.each, self.count, self.ends = 0.0, 0.0, 0, None
        self.rows = []  # of the present passes: (request, rows of its prompt)

    def requests(self):
        return [request for _, _, request in self.decoding] + list(self.prompts) + list(self.waiting)

    def add(self, request, now):
        self.waiting.append(request)
        if self.ends is None:
            self._plan(now)
        elif self.count > 1:  # it joins at the end of the pass that runs
            self.count = min(self.count, int((now - self.began) / self.each) + 1)
            self.ends = self.began + self.count * self.each

    def pass_over(self):
        """Ends the present passes. Returns (passes, seconds of each, requests that decoded in them, requests
        that have their first token, requests that ended)."""
        now, rows = self.ends, len(self.decoding)
        self.done += self.count
        self.context += self.count * rows
        started, ended = [], []
        for request, taken in self.rows:
            request.left -= taken * self.count
        while self.decoding and self.decoding[0][0] <= self.done:
            request = heapq.heappop(self.decoding)[2]
            self.context -= request.prompt + request.answer
            ended.append(request)
        if self.rows:
            if len(self.prompts) > 1 and self.prompts[0].left > 0:
                self.prompts.rotate(-1)
            started = [request for request, _ in self.rows if request.left == 0]
            if started:
                self.prompts = collections.deque(each for each in self.prompts if each.left > 0)
        for request in started:
            if request.answer == 1:
                ended.append(request)
            else:
                self.order += 1
                heapq.heappush(self.decoding, (self.done + request.answer - 1, self.order, request))
                self.context += request.prompt + 1
        for request in ended:
            self._end(request)
        result = self.count, self.each, rows, started, ended
        self._plan(now)
        return result

    def _end(self, request):
        tokens = request.prompt + request.answer
        self.held_tokens -= tokens
        name = request.session.name
        self.cached_tokens += tokens - self.cache.pop(name, 0)
        self.cache[name] = tokens
        self._shrink_cache()

    def _shrink_cache(self):
        room = min(self.times.cache_tokens, self.times.kv_tokens - self.held_tokens)
        while self.cached_tokens > room:
            self.cached_tokens -= self.cache.popitem(last=False)[1]

    def _admit(self):
        """Returns how many requests begin."""
        begun = 0
        while self.waiting and len(self.decoding) + len(self.prompts) < self.times.max_requests:
            request = self.waiting[0]
            tokens = request.prompt + request.answer
            # Whoever needs more than all there is runs alone rather than never.
            if self.held_tokens and self.held_tokens + tokens > self.times.kv_tokens:
                break
            begun += 1
            self.waiting.popleft()
            name = request.session.name
            # The last token of a prompt is run anyway, for its logits.
            request.cached = min(self.cache.get(name, 0), request.prompt - 1)
            if request.cached:
                self.cache.move_to_end(name)
            request.left = request.prompt - request.cached
            self.held_tokens += tokens
            self.prompts.append(request)
            self._shrink_cache()
        return begun

    def _plan(self, now):
        """The passes from now on that are alike: until a request ends, or a prompt."""
        beginning = self._admit() * self.times.request_seconds if self.waiting else 0.0
        self.rows = []
        decoding, prompt_rows = len(self.decoding), 0
        if not decoding and not self.prompts:
            self.ends = None
            return
        self.count = self.decoding[0][0] - self.done if decoding else 1 << 60
        if self.prompts:
            room = self.times.prefill_rows if decoding else self.times.max_rows
            prompt_rows = room
            for request in self.prompts:
                taken = min(room, request.left)
                self.rows.append((request, taken))
                room -= taken
                if room == 0:
                    break
            prompt_rows -= room
            alone = len(self.prompts) == 1
            self.count = min(self.count, self.prompts[0].left // prompt_rows if alone else 1)
        if beginning:
            self.count = 1  # those behind it are not alike
        # The context grows by a token a row; passes that are one event take what those in the middle do.
        context = self.context + decoding * (self.count - 1) / 2
        self.began, self.each = now, self.times.seconds(decoding, context, prompt_rows) + beginning
        self.ends = now + self.count * self.each
