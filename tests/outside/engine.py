"""The engine's rules in exact arithmetic: maps a graph, as read by `kvcast simulate`, to start and finish times as fractions."""

from fractions import Fraction


class Op:
    def __init__(self, raw: dict, resources: dict):
        self.id, self.lane, self.after = raw['id'], raw['lane'], list(raw.get('after', []))
        self.latency = Fraction(raw.get('latency_s', 0))
        self.share = {name: Fraction(amount) / resources[name]['rate'] for name, amount in raw.get('demand', {}).items() if amount}
        self.fifos = {name for name in self.share if resources[name]['sharing'] == 'fifo'}
        self.start = self.finish = self.ready = self.wakes = None
        self.left = Fraction(1)  # remaining share of the work
        self.working = False

    @property
    def alone(self) -> Fraction:
        return max(self.share.values())


def speeds(working: list) -> dict:
    """Returns the work per second of each op by progressive filling: shares grow together until a resource is full or an op runs
    as fast as alone."""
    share = {op: Fraction(0) for op in working}
    growing = set(working)
    while growing:
        rooms = [1 - share[op] for op in growing]
        for name in {name for op in growing for name in op.share}:
            pace = sum(op.share[name] / op.alone for op in growing if name in op.share)
            used = sum(share[op] * op.share[name] / op.alone for op in working if name in op.share)
            rooms.append((1 - used) / pace)
        step = min(rooms)
        for op in growing:
            share[op] += step
        full = {name for op in working for name in op.share
                if sum(share[o] * o.share[name] / o.alone for o in working if name in o.share) == 1}
        growing = {op for op in growing if share[op] < 1 and not full & set(op.share)}
    return {op: share[op] / op.alone for op in working}


class Run:
    def __init__(self, graph: dict):
        resources = {r['name']: {'rate': Fraction(r['rate']), 'sharing': r['sharing']} for r in graph['resources']}
        self.ops = [Op(raw, resources) for raw in graph['ops']]
        self.by_id = {op.id: op for op in self.ops}
        self.lanes = {lane: [op for op in self.ops if op.lane == lane] for lane in graph['lanes']}
        self.held, self.queue, self.now = set(), [], Fraction(0)

    def finish(self, op: Op) -> None:
        op.finish, op.working = self.now, False
        self.held -= op.fifos
        self.lanes[op.lane].remove(op)

    def settle(self) -> None:
        """Processes all events of this instant except the assignment of fifo resources."""
        changed = True
        while changed:
            changed = False
            for op in [op for op in self.ops if op.working and op.left == 0]:
                self.finish(op)
                changed = True
            for line in self.lanes.values():
                if line and line[0].start is None and all(self.by_id[a].finish is not None for a in line[0].after):
                    line[0].start, line[0].wakes = self.now, self.now + line[0].latency
                    changed = True
            for op in [op for op in self.ops if op.wakes == self.now and op.ready is None]:
                op.ready, changed = self.now, True
                if not op.share:
                    self.finish(op)
                elif op.fifos:
                    self.queue.append(op)
                else:
                    op.working = True

    def hand_out(self) -> None:
        self.queue.sort(key=lambda op: (op.ready, op.id))
        for op in list(self.queue):
            if not op.fifos & self.held:
                self.held |= op.fifos
                self.queue.remove(op)
                op.working = True

    def all(self) -> list:
        """Runs the graph; returns every instant at which something happened."""
        instants = []
        while any(op.finish is None for op in self.ops):
            self.settle()
            self.hand_out()
            instants.append(self.now)
            working = [op for op in self.ops if op.working]
            pace = speeds(working)
            times = [op.wakes for op in self.ops if op.wakes is not None and op.ready is None]
            times += [self.now + op.left / pace[op] for op in working]
            if not times:
                break
            later = min(times)
            for op in working:
                op.left -= pace[op] * (later - self.now)
            self.now = later
        return instants
