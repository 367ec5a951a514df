"""What the GPU runner asks of a GPU: launches, graph nodes, copies, waits and allocations.

ONNX Runtime's CUDA provider runs over stand-ins for CUDA's libraries, whose kernels compute nothing. So these tests see
every call and no result.
"""

from __future__ import annotations

from collections import Counter

import pytest

from app.runtime.cuda_choice import OWN_ATTENTION, SWITCHES
from app.runtime.cuda_pacing import MAX_AHEAD
from tests.gpu_stub.conftest import NUM_LAYERS
from tests.gpu_stub.rehearsal import NUM_SENTENCES, NUM_STEPS
from tests.gpu_stub.trace import LAUNCHES, Event, Trace, launches, nodes

SHAPES = [f"{num_rows} {num_candidates}" for num_rows in (1, NUM_SENTENCES) for num_candidates in (1, 8)]
# Calls during which the host waits for the GPU, or that make a captured graph invalid.
NOT_IN_A_GRAPH = ("allocate", "free", "wait", "copy_and_wait", "host_function", "graph")


def kinds(events: list[Event]) -> Counter[str]:
    return Counter(event.kind for event in events)


@pytest.mark.seconds
@pytest.mark.parametrize("shape", SHAPES)
def test_a_step_of_a_captured_shape_copies_in_once_replays_once_and_waits_once(
    trace: Trace, shape: str
) -> None:
    events = trace.section(f"step {shape}")
    assert launches(events) == {"copy in": 1, "replay": 1, "copy out": 2}
    assert kinds(events)["wait"] == 1
    assert kinds(events)["allocate"] == 0


@pytest.mark.parametrize("num_rows", [1, NUM_SENTENCES])
def test_each_step_of_a_greedy_call_is_one_replay_and_one_kernel_and_the_call_waits_once(
    trace: Trace, num_rows: int
) -> None:
    """The inputs are copied in once, and all results are copied out once."""
    events = trace.section(f"call {num_rows}")
    assert launches(events) == {"copy in": 1, "replay": NUM_STEPS, "greedy step": NUM_STEPS, "copy out": 1}
    assert [event.detail for event in events if event.kind == "wait"] == ["stream"]
    assert events[-1].kind == "wait"
    assert kinds(events)["allocate"] == 0


def test_each_step_of_a_call_of_beams_is_one_replay_and_two_kernels_and_the_call_waits_once(
    trace: Trace,
) -> None:
    """Two copies in: the inputs, and the beams.

    Three copies out: what the beams chose in all steps, and the ids and log-probabilities of the last candidates.
    """
    events = trace.section("beams")
    assert launches(events) == {
        "copy in": 2,
        **dict.fromkeys(("replay", "beam step", "copy of cache rows"), NUM_STEPS),
        "copy out": 3,
    }
    assert [event.detail for event in events if event.kind == "wait"] == ["stream"]
    assert events[-1].kind == "wait"
    assert kinds(events)["allocate"] == 0


@pytest.mark.parametrize("num_rows", [1, NUM_SENTENCES])
def test_with_a_stop_condition_the_host_stays_a_few_steps_ahead_of_the_gpu(
    trace: Trace, num_rows: int
) -> None:
    """The host enqueues MAX_AHEAD steps. Before each further step, it waits for the end of an earlier one."""
    events = trace.section(f"call with a flag {num_rows}")
    assert launches(events) == {"copy in": 1, "replay": NUM_STEPS, "greedy step": NUM_STEPS, "copy out": 1}
    calls = [event.kind for event in events if event.kind in {"replay", "wait"}]
    assert calls == ["replay"] * MAX_AHEAD + ["wait", "replay"] * (NUM_STEPS - MAX_AHEAD) + ["wait"]
    waits = [event.detail for event in events if event.kind == "wait"]
    assert waits == ["event"] * (NUM_STEPS - MAX_AHEAD) + ["stream"]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_first_step_of_a_shape_captures_one_graph(trace: Trace, shape: str) -> None:
    events = trace.section(f"first step {shape}")
    (graph,) = [event for event in events if event.kind == "graph"]
    (replay,) = [event for event in events if event.kind == "replay"]
    assert graph.amount == replay.amount == sum(nodes(events).values())


def test_nothing_in_a_graph_allocates_waits_or_copies_to_the_host(trace: Trace) -> None:
    captured = trace.captured()
    assert len(captured) > len(SHAPES)
    assert {event.kind for event in captured}.isdisjoint(NOT_IN_A_GRAPH)
    assert {event.detail for event in captured if event.kind == "copy"} <= {"on_device"}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_nodes_of_a_step(trace: Trace, shape: str) -> None:
    """With six layers this table adds up to 121 nodes.

    A base-size model has 122, because its top-k over 8,000 subwords takes one more kernel.
    """
    # ONNX Runtime writes the bias into the result before a product adds to it. A result of one row has the shape of the
    # bias, so a copy suffices. For more rows a kernel repeats the bias.
    bias = "copy on_device" if shape.startswith("1 ") else "copy of a bias"
    assert nodes(trace.section(f"first step {shape}")) == {
        "product": 6 * NUM_LAYERS + 1,
        "sum and norm": 3 * NUM_LAYERS,
        bias: 3 * NUM_LAYERS,
        "lengths of rows": 2 * NUM_LAYERS,
        **dict.fromkeys(("append to the cache", "memset", "XQA", "flash", "ReLU"), NUM_LAYERS),
        "gather": 2,
        "add": 1,
        "cast": 1,
        "log-softmax": 1,
        "top-k": 1,
    }


def test_each_switch_changes_the_nodes_of_a_step_as_it_says(trace: Trace) -> None:
    flash_decoding, added_biases, tuned_products = SWITCHES[:3]
    usual = nodes(trace.section(f"first step {NUM_SENTENCES} 1"))
    flash, biases = (
        nodes(trace.section(f"first step {switch.name}")) for switch in (flash_decoding, added_biases)
    )
    assert (usual["XQA"], flash["XQA"], biases["XQA"]) == (NUM_LAYERS, 0, NUM_LAYERS)
    assert flash["flash"] == 2 * NUM_LAYERS
    assert (usual["add"], biases["add"]) == (1, 1 + 3 * NUM_LAYERS)
    assert sum(biases.values()) == sum(usual.values())
    # The tuner captures a graph of its own, to measure products. The last graph is the step's.
    graphs = [event for event in trace.section(f"first step {tuned_products.name}") if event.kind == "graph"]
    assert [len(graphs), graphs[-1].amount] == [2, sum(usual.values())]


def test_the_projects_attention_is_one_node(trace: Trace) -> None:
    """A step of a base-size model has 87 nodes instead of 122.

    The attention's node also adds the biases of queries, keys and values, finds the rows' lengths and appends to the
    cache. Separate nodes add the inner bias of each feed-forward network and the bias of the alignment's queries. One
    more node adds the positions to the embeddings, as in any step.
    """
    events = trace.section(f"first step {OWN_ATTENTION.name}")
    assert nodes(events) == {
        "product": 6 * NUM_LAYERS + 1,
        "sum and norm": 3 * NUM_LAYERS,
        "attention": 2 * NUM_LAYERS,
        "ReLU": NUM_LAYERS,
        "gather": 2,
        "add": 2 + NUM_LAYERS,
        "cast": 1,
        "log-softmax": 1,
        "top-k": 1,
    }
    assert {event.stream for event in events if event.name == "attention"} == {
        event.stream for event in events if event.name == "product"
    }


def test_everything_runs_on_the_runners_stream(trace: Trace) -> None:
    streams = {
        event.stream
        for name in ("encode one length", *(f"first step {shape}" for shape in SHAPES), "reorder")
        for event in trace.section(name)
        if event.kind in LAUNCHES
    }
    assert len(streams) == 1
    assert streams != {0}


def test_cache_rows_are_copied_by_one_kernel(trace: Trace) -> None:
    assert launches(trace.section("reorder")) == {"copy in": 1, "copy of cache rows": 1}


def test_a_swap_of_rows_allocates_nothing(trace: Trace) -> None:
    events = trace.section("swap")
    assert launches(events) == {"copy in": 2, "copy of cache rows": 2}
    assert kinds(events)["allocate"] == 0


def test_sentences_of_one_length_are_encoded_in_one_call(trace: Trace) -> None:
    found = launches(trace.section("encode one length"))
    assert found["flash"] == NUM_LAYERS
    assert found["product"] == 4 * NUM_LAYERS + 1
    assert found["copy of cache rows"] == 1
    assert sum(found.values()) == 12 * NUM_LAYERS + 8


def test_sentences_of_different_lengths_are_encoded_in_one_call(trace: Trace) -> None:
    assert sum(launches(trace.section("encode all lengths")).values()) == 12 * NUM_LAYERS + 8


def test_short_sentences_are_not_padded_to_a_much_longer_one(trace: Trace) -> None:
    """The short sentences take one call, and the long sentence another."""
    found = launches(trace.section("encode far lengths"))
    assert found["flash"] == 2 * NUM_LAYERS
    assert sum(found.values()) == 2 * (12 * NUM_LAYERS + 8)


def test_a_runner_frees_its_memory_when_its_last_reference_goes(trace: Trace) -> None:
    assert kinds(trace.section("end"))["free"] > 0
