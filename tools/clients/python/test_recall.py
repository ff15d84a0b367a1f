"""What a prompt that begins on the prefix cache recalls, by mode: the table in docs/serving.md.

RECALL_STEP=1 pytest -s test_recall.py asks all cases, and takes a minute; otherwise every fifth is asked.
"""

import collections
import concurrent.futures
import json
import os
import pathlib

import served
from served import MODEL

CASES = json.loads((pathlib.Path(__file__).parents[3] / "testdata/demo/recall.json").read_text())["cases"]
STEP = int(os.environ.get("RECALL_STEP", "5"))


def ask(client, case, mode):
    """The answer to a case whose facts were read before, and what it found in the cache."""
    shared = {"model": MODEL, "temperature": 0, "extra_body": {"cache": mode, "cache_salt": mode}}
    facts = case["prompt"].rsplit("\n", 1)[0]
    client.completions.create(prompt=facts, max_tokens=1, **shared)
    got = client.completions.create(prompt=case["prompt"], max_tokens=6, extra_headers={"X-Cedrun-Debug": "cache"}, **shared)
    return got.choices[0].text, got.cedrun["cache"][0]


def test_prompts_on_the_cache_recall_what_cold_ones_do():
    cases = CASES[::STEP]
    answers, found = {}, {}
    with served.serve("--kv-host", "1GiB") as url, concurrent.futures.ThreadPoolExecutor(4) as pool:
        client = served.openai_client(url)
        for mode in ("off", "snapshot", "replay"):
            got = list(pool.map(lambda case, mode=mode: ask(client, case, mode), cases))
            answers[mode], found[mode] = zip(*got)
    recalled = {}
    for mode in answers:
        right, asked = collections.Counter(), collections.Counter()
        for case, answer in zip(cases, answers[mode]):
            asked[case["distance_windows"]] += 1
            right[case["distance_windows"]] += answer.startswith(case["answer"])
        recalled[mode] = right.total()
        print(f"\n{mode}: " + ", ".join(f"{d}: {right[d]}/{n}" for d, n in sorted(asked.items())))
    assert {x["restore"] for x in found["off"]} == {"none"}
    assert {x["restore"] for x in found["snapshot"]} <= {"snapshot", "rows"}
    assert {x["restore"] for x in found["replay"]} == {"replay"}
    assert all(x["hit_tokens"] > 0 for mode in ("snapshot", "replay") for x in found[mode])
    assert answers["snapshot"] == answers["off"]
    same = sum(a == b for a, b in zip(answers["replay"], answers["off"]))
    print(f"{same} of {len(cases)} answers of replay are those of a cold run, letter for letter")
    assert recalled["replay"] >= 0.95 * recalled["off"]
