"""Measures how long the planner's page waits after a number of the machine has changed.

usage: redraw.py KVCAST [CHANGES]
Requests, like the page, a sweep over four policies with a timeline, nominal first and then with intervals, and at the same
time a plan with a waterfall and a break-even, each time with another HBM bandwidth. Prints the median and the 90th percentile
of each, of the time until all have arrived, and of a bare request of the catalogue, which is the overhead of the server.
"""

import pathlib
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'serve'))
from server import Server  # noqa: E402

QUEST = '{name: quest, budget: 1024}'
COMMON = '''model: llama-3.1-8b
hardware: {{like: h100-sxm, gpu: {{hbm_bandwidth: x{factor}}}}}
workload: {{prompt_tokens: 32768, decode_tokens: 512, batch: 4}}
'''
SWEEP = COMMON + f'''sweep:
  policy: [full, {{{QUEST}}}, {{{{name: rocketkv, budget: 1024}}}}, {{{{name: freekv, budget: 1024, sink: 64, recent: 64}}}}]
'''
PLAN = COMMON + f'''policy: {{{QUEST}}}
plan:
  - why: {{{{of: {{{{policy: {{{QUEST}}}}}}}, against: {{{{policy: full}}}}, if_free: false}}}}
  - break_even: {{{{key: workload.batch, from: 1, to: 64, metric: decode.tokens_per_s, of: {{{{policy: {{{QUEST}}}}}}}, against: {{{{policy: full}}}}}}}}
'''


# The same with traffic: the four policies at the present rate and at 9 rates, without intervals.
SERVICE = '''model: llama-3.1-8b
hardware: h100-sxm
traffic: {{rate: {rate}, requests: 200, prompt_tokens: 32768, output_tokens: 512, slo: {{ttft: 10 s, tpot: 50 ms}}}}
scheduler: {{prefix_caching: false}}
'''
AT_RATE, AT_RATES = ('sweep:\n' + SWEEP.split('sweep:\n')[1] + rates for rates in ('', '  traffic.rate: {rates}\n'))


def timed(times, ask, *arguments):
    begun = time.perf_counter()
    ask(*arguments)
    times.append(time.perf_counter() - begun)


def show(name, times):
    ordered = sorted(times)
    print(f'{name:<28} median {1e3 * statistics.median(times):6.0f} ms   p90 {1e3 * ordered[int(0.9 * (len(ordered) - 1))]:6.0f} ms')


def main():
    tool, changes = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 30
    sweeps, intervals, plans, both, bare = [], [], [], [], []

    def sweep(server, yaml):
        timed(sweeps, server.lines, '/api/sweep?nominal=1&timeline=1', yaml)
        timed(intervals, server.lines, '/api/sweep?timeline=1', yaml)

    with Server(tool) as server:
        for i in range(changes + 1):
            text = {name: yaml.format(factor=round(1 + 0.01 * i, 2)) for name, yaml in (('sweep', SWEEP), ('plan', PLAN))}
            begun = time.perf_counter()
            threads = [threading.Thread(target=sweep, args=(server, text['sweep'])),
                       threading.Thread(target=timed, args=(plans, server.lines, '/api/plan', text['plan']))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            both.append(time.perf_counter() - begun)
            timed(bare, server.ask, 'GET', '/api/catalogue')
        service, curve = [], []
        for i in range(changes + 1):
            rate = 0.25 * (1 + 0.01 * i)
            threads = [threading.Thread(target=timed, args=(service, server.lines, '/api/sweep?nominal=1&timeline=1', (SERVICE + AT_RATE).format(rate=rate))),
                       threading.Thread(target=timed, args=(curve, server.lines, '/api/sweep?nominal=1', (SERVICE + AT_RATES).format(rate=rate, rates=[round(rate * 2 ** (k / 2), 4) for k in range(-4, 5)])))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    # The first change replays the traces.
    for name, times in (('sweep', sweeps), ('sweep with intervals', intervals), ('plan', plans), ('both', both), ('catalogue', bare), ('service at a rate', service), ('service at 9 rates', curve)):
        show(name, times[1:])


if __name__ == '__main__':
    main()
