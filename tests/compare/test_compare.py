"""What is said of two versions, from their files to the exit status."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from d5test.metric import Metric, Sample
from tests.compare.files import RIGHT, benchmark, name, plain, record, sides, write

Compared = Callable[..., Any]


def counted(answer: Any) -> dict[str, int]:
    """The verdicts that there are."""
    return {verdict: count for verdict, count in answer.found["counts"].items() if count}


def test_nothing_changed(tmp_path: Path, compared: Compared) -> None:
    answer = compared(*sides(tmp_path))
    assert (answer.status, answer.found["verdict"]) == (0, "passed")
    assert answer.verdict(name(0), "time")["verdict"] == "same"
    assert counted(answer) == {"same": 25}


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_a_slowdown_is_named(runs: int, tmp_path: Path, compared: Compared) -> None:
    answer = compared(*sides(tmp_path, runs, slower={1: 1.1, 3: 1.3}))
    assert answer.status == 1
    worse = answer.found["decisions"][:2]
    assert [d["verdict"] for d in worse] == ["worse", "worse"]
    assert [d["benchmark"] for d in worse] == [name(3), name(1)]
    assert [d["change"] for d in worse] == pytest.approx([0.3, 0.1], abs=0.02)
    assert answer.found["counts"]["worse"] == 2
    assert "time of gemm-3-forward-torch +" in answer.found["reason"]


def test_what_got_faster_is_better(tmp_path: Path, compared: Compared) -> None:
    answer = compared(*sides(tmp_path, slower={2: 0.8}))
    assert answer.status == 0
    assert answer.verdict(name(2), "time")["verdict"] == "better"


def test_one_run_a_side_is_unsure_and_says_why(tmp_path: Path, compared: Compared) -> None:
    files = sides(tmp_path, runs=1, slower={0: 1.5})
    answer = compared(*files)
    decision = answer.verdict(name(0), "time")
    assert (decision["verdict"], decision["limit"]) == ("unsure", None)
    assert "two runs" in decision["reason"]
    assert (answer.status, answer.found["verdict"]) == (0, "unsure")
    assert compared(*files, "--unsure=fail").status == 1
    shown = compared(*files, "--format=text")
    assert shown.out.splitlines()[-1].startswith(
        "NOTHING COULD BE TOLD: none of 5 benchmarks could have shown a slowdown of 5.0%; "
    )


def test_noise_hides_a_slowdown_and_says_what_it_would_not(
    tmp_path: Path, compared: Compared
) -> None:
    decision = compared(*sides(tmp_path, noise=0.1, slower={0: 1.1})).verdict(name(0), "time")
    assert decision["verdict"] == "unsure"
    assert decision["detectable"] > decision["limit"] > 0.1
    assert f"{decision['detectable']:.1%}" in decision["reason"]


def test_one_file_with_a_control_arm_is_enough(tmp_path: Path, compared: Compared) -> None:
    for side, factor in (("old", 1.0), ("new", 1.2)):
        found = [
            benchmark(
                name(b),
                f * factor,
                control=[f * factor * 1.004, f * factor * 1.007],
                control_resident=[10**8, 10**8 + 10**5],
            )
            for b, f in enumerate((1e-3, 2e-3))
        ]
        write(tmp_path / f"{side}.json", found)
    answer = compared(tmp_path / "old.json", tmp_path / "new.json")
    assert answer.verdict(name(1), "time")["verdict"] == "worse"
    assert answer.verdict(name(1), "resident memory")["verdict"] == "same"


WORSE = [
    ("judgement", {**RIGHT, "ratio": 0.26}, "error / bar", "+4.0%"),
    ("judgement", {**RIGHT, "ratio": 40.0, "right": False}, "right", ""),
    ("judgement", {**RIGHT, "share": 0.5}, "share judged", "-50.0%"),
    ("memory", {"resident": 2 * 10**8, "device": None}, "resident memory", "+100.0%"),
]


@pytest.mark.parametrize(("field", "value", "metric", "change"), WORSE)
def test_as_fast_but_worse(
    field: str, value: Any, metric: str, change: str, tmp_path: Path, compared: Compared
) -> None:
    answer = compared(*sides(tmp_path, new={2: {field: value}}))
    assert answer.status == 1
    assert answer.verdict(name(2), metric)["verdict"] == "worse"
    what = "wrong outputs" if metric == "right" else metric
    reason = answer.found["reason"]
    assert f"{what} of gemm-2-forward-torch {change}".strip() in reason
    assert answer.verdict(name(1), metric)["verdict"] == "same"


def test_device_memory_and_arithmetic_are_exact(tmp_path: Path, compared: Compared) -> None:
    for side, held, arithmetic in (("old", 4096, "F"), ("new", 4608, "P")):
        found = {
            "memory": {"resident": 10**8, "device": held},
            "judgement": {**RIGHT, "arithmetic": arithmetic},
            "dtype": "float16",
        }
        write(tmp_path / f"{side}.json", [benchmark(name(0), 1e-3, **found)])
    answer = compared(tmp_path / "old.json", tmp_path / "new.json")
    assert answer.status == 1
    assert answer.verdict(name(0), "device memory")["verdict"] == "worse"
    assert answer.verdict(name(0), "arithmetic class")["verdict"] == "worse"
    back = compared(tmp_path / "new.json", tmp_path / "old.json")
    assert back.verdict(name(0), "arithmetic class")["verdict"] == "better"


def test_the_rounding_of_the_reference_is_no_loss(tmp_path: Path, compared: Compared) -> None:
    for side, ratio in (("old", 0.25), ("near", 0.25 + 2.0**-30), ("far", 0.25 + 2.0**-28)):
        found = {"judgement": {**RIGHT, "ratio": ratio}}
        write(tmp_path / f"{side}.json", [benchmark(name(0), 1e-3, **found)])
    near, far = (compared(tmp_path / "old.json", tmp_path / f"{n}.json") for n in ("near", "far"))
    assert near.verdict(name(0), "error / bar")["verdict"] == "same"
    assert far.verdict(name(0), "error / bar")["verdict"] == "worse"


def test_an_exact_metric_that_does_not_repeat_must_leave_its_range(
    tmp_path: Path, compared: Compared
) -> None:
    ratios = {
        "old": (0.2, 0.3), "again": (0.2, 0.3), "within": (0.25, 0.35), "beyond": (0.5, 0.6),
    }  # fmt: skip
    for side, found in ratios.items():
        for k, ratio in enumerate(found):
            entry = benchmark(name(0), 1e-3 + 1e-5 * k, judgement={**RIGHT, "ratio": ratio})
            write(tmp_path / f"{side}{k}.json", [entry])
    said = {
        side: compared(f"{tmp_path}/old*", f"{tmp_path}/{side}*").verdict(name(0), "error / bar")
        for side in ("again", "within", "beyond")
    }
    assert {side: d["verdict"] for side, d in said.items()} == {
        "again": "same", "within": "unsure", "beyond": "worse"
    }  # fmt: skip


def test_the_time_of_wrong_outputs_is_invalid(tmp_path: Path, compared: Compared) -> None:
    wrong = {**RIGHT, "right": False, "ratio": 3.0}
    answer = compared(*sides(tmp_path, slower={2: 0.5}, new={2: {"judgement": wrong}}))
    decision = answer.verdict(name(2), "time")
    assert (decision["verdict"], decision["new"]) == ("unsure", [[], [], []])
    assert "invalid" in decision["reason"]


def test_files_of_other_projects(tmp_path: Path, compared: Compared) -> None:
    for side, factor in (("old", 1.0), ("new", 1.2)):
        for k in range(3):
            found = [plain(f"bench.py::test[{b}]", factor * (b + 1 + 0.002 * k)) for b in range(4)]
            write(tmp_path / f"{side}{k}.json", found)
    answer = compared(f"{tmp_path}/old*.json", f"{tmp_path}/new*.json")
    assert counted(answer) == {"worse": 4}


def test_communication_is_exact(tmp_path: Path, compared: Compared) -> None:
    for side, messages in (("old", 12), ("new", 13)):
        sent = {"ranks": 4, "contribution_bytes": 64, "messages": messages, "bytes": 768}
        write(tmp_path / f"{side}.json", [plain("ring", 1e-3, communication=sent)])
    answer = compared(tmp_path / "old.json", tmp_path / "new.json")
    assert answer.status == 1
    assert answer.verdict("ring", "messages sent")["verdict"] == "worse"
    assert answer.verdict("ring", "bytes sent")["verdict"] == "same"


def test_metrics_of_strangers_come_with_their_rules(tmp_path: Path, compared: Compared) -> None:
    metrics = [
        (Metric("rows scanned", "1", gate="exact", tolerance=1), [(100, 101), (100, 102)]),
        (Metric("hits", "1", better="higher", gate="exact"), [(9,), (8,)]),
        (Metric("queries a second", "1/s", better="higher"), [(50, 90), (50, 45)]),
        (Metric("temperature", "K", gate="never"), [(300,), (400,)]),
    ]
    for k, side in enumerate(("old", "new")):
        for run in range(3):
            samples = [
                Sample(m, tuple(v * (1 + 0.001 * run * (m.gate == "noise")) for v in values[k]))
                for m, values in metrics
            ]
            found = plain("query", 1 + run / 1000, metrics=[s.to_json() for s in samples])
            write(tmp_path / f"{side}{run}.json", [found])
    answer = compared(f"{tmp_path}/old*", f"{tmp_path}/new*")
    verdicts = {d["metric"]["name"]: d["verdict"] for d in answer.found["decisions"]}
    assert verdicts == {
        "time": "same",
        "rows scanned": "same",
        "hits": "worse",
        "queries a second": "worse",
    }
    assert answer.verdict("query", "queries a second")["change"] == pytest.approx(-4 / 9)


def test_the_environment_is_shown_where_it_differs(tmp_path: Path, compared: Compared) -> None:
    for side, system in (("old", "Linux"), ("new", "Darwin")):
        backend = {**record(1.0)["backend"], "version": {"old": "2.0", "new": "2.1"}[side]}
        found = benchmark(name(0), 1e-3, backend=backend)
        write(tmp_path / f"{side}.json", [found], system=system, python_version="3.11.7")
    found = compared(tmp_path / "old.json", tmp_path / "new.json").found["environment"]
    assert found == {"system": ["Linux", "Darwin"], "torch: version": ["2.0", "2.1"]}


def test_markdown_begins_with_the_verdict(tmp_path: Path, compared: Compared) -> None:
    answer = compared(*sides(tmp_path, slower={0: 1.2}), "--format=markdown")
    first, _, heading, rule, row, *_ = answer.out.splitlines()
    assert first.startswith("**REGRESSED: 1 worse (time of gemm-0-forward-torch +")
    assert heading.startswith("| verdict |")
    assert set(rule) == {"|", " ", "-"}
    assert row.startswith("| worse | +")


def test_the_table_is_worst_first_and_ends_with_the_verdict(
    tmp_path: Path, compared: Compared
) -> None:
    lines = compared(*sides(tmp_path, slower={0: 1.2, 1: 0.8}), "--format=text").out.splitlines()
    words = [line.split()[0] for line in lines if line.strip()]
    assert words.index("worse") < words.index("better")
    assert lines[-1].startswith("REGRESSED: 1 worse")


@pytest.mark.parametrize("effect", ["5", "0%", "x", "-1%"])
def test_a_mistyped_effect_is_a_usage_error(
    effect: str, tmp_path: Path, compared: Compared
) -> None:
    with pytest.raises(SystemExit) as ended:
        compared(*sides(tmp_path, 1, count=1), f"--effect={effect}")
    assert ended.value.code == 2


def test_the_effect_moves_the_limit(tmp_path: Path, compared: Compared) -> None:
    files = sides(tmp_path, noise=0.0005, slower={0: 1.04})
    assert compared(*files, "--effect=5%").status == 1
    assert compared(*files, "--effect=0.1").status == 0


def test_json_has_no_nan(tmp_path: Path, compared: Compared) -> None:
    answer = compared(*sides(tmp_path, runs=1))
    json.loads(answer.out, parse_constant=pytest.fail)
