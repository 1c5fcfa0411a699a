"""Parsing of traces; errors name the line."""

import pytest

from croupier.core.market.units import SECOND
from croupier_lab.simulator import synthetic, trace
from croupier_lab.simulator.synthetic import SyntheticTraceOptions
from croupier_lab.simulator.trace import TraceError

HEADER = "time,pod,class,demand\n"


def test_a_row_is_valid_until_the_next_row_of_its_pod():
    read = trace.read(HEADER + "0,b,latency,0.5\n1,a,elastic,2\n3,b,latency,0\n")

    assert read.seconds == 4
    assert [(one.name, one.book) for one in read.workloads] == [("a", "elastic"), ("b", "latency")]
    assert [cpu / SECOND for cpu in read.workloads[0].demand] == [0, 2, 2, 2]
    assert [cpu / SECOND for cpu in read.workloads[1].demand] == [0.5, 0.5, 0.5, 0]


BAD = {
    "nothing at all": ("", "line 1: it must be time,pod,class,demand"),
    "another header": ("when,who\n", "line 1: it must be time,pod,class,demand"),
    "only a header": (HEADER, "the trace is empty"),
    "a column too few": (HEADER + "0,a,latency\n", "line 2: it has 3 columns instead of 4"),
    "time in words": (HEADER + "\nnow,a,latency,1\n", 'line 3: time "now" must be whole seconds'),
    "time with a fraction": (HEADER + "0.5,a,latency,1\n", 'line 2: time "0.5" must be whole seconds'),
    "a time too late": (
        HEADER + "999999,a,latency,1\n",
        'line 2: time "999999" must be whole seconds from 0',
    ),
    "no name": (HEADER + "0,,latency,1\n", "line 2: the pod has no name"),
    "an unknown class": (HEADER + "0,a,fast,1\n", 'line 2: class "fast" must be latency or elastic'),
    "a class that changes": (
        HEADER + "0,a,latency,1\n1,a,elastic,1\n",
        "line 3: pod a is elastic here and latency before; a pod cannot change its class",
    ),
    "decreasing time": (
        HEADER + "5,a,latency,1\n4,a,latency,1\n",
        "line 3: time 4 of pod a must come after its last one, 5",
    ),
    "demand in words": (HEADER + "0,a,latency,much\n", 'line 2: demand "much" must be CPU from 0'),
    "negative demand": (HEADER + "0,a,latency,-1\n", 'line 2: demand "-1" must be CPU from 0'),
    "a huge demand": (HEADER + "0,a,latency,1e9\n", 'line 2: demand "1e9" must be CPU from 0'),
    "no number": (HEADER + "0,a,latency,NaN\n", 'line 2: demand "NaN" must be CPU from 0'),
    "an open quote": (HEADER + '0,"a,latency,1\n', "line 2: it has 2 columns instead of 4"),
}


@pytest.mark.parametrize(("text", "sentence"), BAD.values(), ids=BAD)
def test_an_error_names_its_line(text, sentence):
    with pytest.raises(TraceError) as raised:
        trace.read(text)

    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_synthetic_trace_is_deterministic_and_can_be_read_back():
    shape = SyntheticTraceOptions(pods=6, minutes=5, seed=3)
    text = trace.to_csv(synthetic.rows(shape))

    assert text == trace.to_csv(synthetic.rows(shape))
    assert text != trace.to_csv(synthetic.rows(SyntheticTraceOptions(pods=6, minutes=5, seed=4)))
    read = trace.read(text)
    assert read.seconds == 300
    assert [one.book for one in read.workloads].count("elastic") == 2
    assert all(max(one.demand) > 0 for one in read.workloads if one.book == "latency")
