"""Rows of runs with a simulated clock, made by hand: rounds of clusters, and of a flat run."""

from fabricated import row, totals

FULL = [
    ["aggregation", 0.5],
    ["transfer", 1.0],
    ["training", 2.0],
    ["transfer", 1.0],
    ["aggregation", 0.5],
]
SHORT = [["aggregation", 0.25], ["training", 1.5], ["aggregation", 0.25]]
LOST = [
    ["aggregation", 0.5],
    ["training", 1.0],
    ["heartbeat", 20.0],
    ["transfer", 0.5],
    ["aggregation", 1.0],
]


def cluster(number, members, steps, aggregator, **more):
    seconds = sum(part for _, part in steps)
    return {
        "cluster": number,
        "members": members,
        "aggregator": aggregator,
        "replaced": [],
        "level": 0.25,
        "macs": 10,
        "lan_down": 5,
        "lan_up": 5,
        "wan_down": 1,
        "wan_up": 1,
        "seconds": seconds,
        "steps": steps,
        **more,
    }


def lines(clients, hops=1):
    """A ledger: 100 bytes down, 80 up, 7000 MACs a hop."""
    ledger = []
    for hop in range(hops):
        for client in clients:
            ledger.append([client, hop, 100, 80, 7000, 0.5, None, 0, 1.0])
    return ledger


def spent(number, simulated, **more):
    return {
        **totals(number),
        "simulated": simulated,
        "lan_down": 300 * number,
        "lan_up": 200 * number,
        **more,
    }


def clustered_rows():
    """Two clusters of two; in the second round client 0 aggregates, is gone, and 1 takes over."""
    first = [
        cluster(0, [0, 1], FULL, 0, histogram=[3, 1]),
        cluster(1, [2, 3], SHORT, 3, histogram=[1, 3]),
    ]
    second = [cluster(0, [0, 1], LOST, 1, replaced=[0]), cluster(1, [2, 3], SHORT, 3)]
    gone = {
        "client": 0,
        "reason": "left: it went away during its work, in hop 1 of its cluster's round",
    }
    after = spent(2, 28.0, wasted_bytes=180, wasted_macs=7000, dropped=1, replaced=1)
    return [
        row(
            1,
            0.2,
            clusters=first,
            population=[4, 4],
            simulated={"begin": 0.0, "end": 5.0},
            ledger=lines(range(4), 2),
            totals=spent(1, 5.0),
        ),
        row(
            2,
            0.6,
            clusters=second,
            simulated={"begin": 5.0, "end": 28.0},
            refused=[gone],
            ledger=lines(range(4), 2),
            totals=after,
        ),
    ]


def flat_rows(count):
    """Round k takes k seconds, as its slowest client 0 does; the median one takes 2 s less."""
    rows = []
    begin = 0.0
    for number in range(1, count + 1):
        end = begin + number + 2
        slow = {
            "client": 0,
            "steps": [["transfer", 1.0], ["training", float(number)], ["transfer", 1.0]],
        }
        middle = {"client": 2, "steps": [["transfer", 0.5], ["training", number - 0.5]]}
        span = {"begin": begin, "end": end}
        rows.append(
            row(number, 0.5, paces=[slow, middle], simulated=span, totals=spent(number, end))
        )
        begin = end
    return rows
