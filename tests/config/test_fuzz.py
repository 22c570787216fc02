"""Whatever a file or a tree holds, loading it gives a job or sentences, never a traceback."""

import copy

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollick.config.load import build_job
from rollick.config.source import read_tree
from rollick.errors import ConfigError
from tests.config.jobs import RL_JOB, SFT_JOB, changed

FULL = changed(
    RL_JOB,
    algorithm={"preset": "grpo", "clip_high": 0.3},
    trainer={"schedule": {"kind": "linear"}, "betas": [0.9, 0.99]},
    evaluation={"environments": RL_JOB["environments"], "pass_at": [1]},
    trackers=["tensorboard"],
)
JUNK = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from(["rl", ".a", "..b"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text(max_size=5), st.integers()), inner, max_size=3)
    ),
    max_leaves=6,
)


def paths_of(tree, prefix=()):
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*prefix, key)
        yield from paths_of(value, (*prefix, key))


def put(tree, path, value):
    tree = copy.deepcopy(tree)
    *parents, last = path
    node = tree
    for part in parents:
        node = node[part]
    node[last] = value
    return tree


def refusal(build):
    """The sentences of a refusal, [] for a job."""
    try:
        build()
    except ConfigError as error:
        return error.problems
    return []


@given(data=st.data(), junk=JUNK)
@settings(max_examples=80, deadline=None)
def test_any_value_anywhere_is_accepted_or_refused_in_sentences(data, junk):
    tree = data.draw(st.sampled_from([FULL, SFT_JOB]))
    path = data.draw(st.sampled_from(list(paths_of(tree))))
    problems = refusal(lambda: build_job(put(tree, path, junk), {}, "job.yaml"))
    assert all(problem and "\n" not in problem for problem in problems)


@given(content=st.one_of(st.binary(max_size=60), st.text(alphabet="ab:- \n\t[]{}\"'#&*!|>%@${}?,0.", max_size=40)))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_is_read_or_refused_in_one_sentence(tmp_path, content):
    path = tmp_path / "job.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    problems = refusal(lambda: read_tree(path))
    assert len(problems) <= 1 and all("\n" not in problem and str(path) in problem for problem in problems)


@given(override=st.text(alphabet="ab.=:-[]{}\"'$?01 ,", max_size=15))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_override_is_applied_or_refused_in_one_sentence(tmp_path, override):
    path = tmp_path / "job.yaml"
    path.write_text("a: {b: [1, {a: 2}]}\nb: text\n")
    problems = refusal(lambda: read_tree(path, [override]))
    assert len(problems) <= 1 and all("\n" not in problem for problem in problems)
