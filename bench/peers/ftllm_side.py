"""ftllm's side of bench/peers: loads a checkpoint on the CPU and answers the lines that cedside/main.go documents.

ftllm reads the released shards as they are. Beside them it wants engram_meta.json (token map and hash multipliers) and
a tokenizer; a directory of links to the checkpoint gets what is missing, so the checkpoint itself is not written to.
"""

import argparse
import ctypes
import importlib.metadata
import json
import os
import tempfile
import time

# ftllm and its library print to stdout, and after an error they wait for a key: neither end is theirs.
requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)

# Each request must be computed, not recalled; the warm-up of the library is ours.
os.environ["FASTLLM_DSV41_DISABLE_PREFIX_CACHE"] = "1"
os.environ["FASTLLM_SKIP_WARMUP"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"


def answer(value):
    answers.write(json.dumps(value) + "\n")
    answers.flush()


def linked(model, into):
    """A directory of links to the files of the checkpoint, and what ftllm wants beside them."""
    for name in os.listdir(model):
        os.symlink(os.path.abspath(os.path.join(model, name)), os.path.join(into, name))
    with open(os.path.join(into, "config.json")) as f:
        text = json.load(f)["text_config"]
    if os.path.exists(os.path.join(into, "engram_tables.json")):
        with open(os.path.join(into, "engram_tables.json")) as f:
            tables = json.load(f)
        write(into, "engram_meta.json", {
            "token_map": tables["token_map"],
            "compressed_vocab_size": max(tables["token_map"]) + 1,
            "pad_token_id": tables["pad_token_id"],
            "engram_layer_ids": [int(layer) for layer in tables["layers"]],
            "multipliers": [layer["multipliers"] for layer in tables["layers"].values()],
        })
    special = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
    write(into, "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": i, "content": s, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i, s in enumerate(special)],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": True,
                  "vocab": {s: i for i, s in enumerate(special)} |
                           {f"Ġt{i}": i for i in range(len(special), text["vocab_size"])}, "merges": []},
    })
    write(into, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 1 << 20,
        "bos_token": special[0], "eos_token": special[1], "pad_token": special[2],
    })
    return text["vocab_size"]


def write(into, name, value):
    path = os.path.join(into, name)
    if not os.path.exists(path):
        with open(path, "w") as f:
            json.dump(value, f)


def load(path, args):
    from ftllm.util import make_normal_llm_model, make_normal_parser

    line = ["--path", path, "--dtype", args.dtype, "--device", args.device,
            "--moe_device", args.moe_device,
            "--cuda_shared_expert", "false", "--cache_history", "false", "-t", str(args.threads),
            "--max_batch", str(args.streams), "--tokens", str(args.context * args.streams)]
    if args.prefill == "replay":
        line.append("--fast_prefill")
    return make_normal_llm_model(make_normal_parser("bench/peers").parse_args(line))


def serve(llm, model, vocabulary, q):
    ids, logits = q["ids"], q.get("logits")
    row = (ctypes.c_float * vocabulary)()
    rows = open(logits, "wb") if logits else None
    first, rest, tokens = 0.0, 0.0, []
    begin = time.perf_counter()
    handle = llm.fastllm_lib.launch_response_llm_model(
        model.model, len(ids), (ctypes.c_int * len(ids))(*ids), q["decode"], q["decode"],
        False, 1.0, 1, 1.0, 1.0, logits is not None, 0, None)  # greedy
    while True:
        while not llm.fastllm_lib.can_fetch_response_llm_model(model.model, handle):
            time.sleep(0.0005)  # fetching would spin, and the library needs the core
        if rows:
            token = llm.fastllm_lib.fetch_response_logits_llm_model(model.model, handle, row)
        else:
            token = llm.fastllm_lib.fetch_response_llm_model(model.model, handle)
        if token < 0:
            break
        now = time.perf_counter() - begin
        first, rest = first or now, now - (first or now)
        tokens.append(token)
        if rows:
            rows.write(bytes(row))
    if rows:
        rows.close()
    return {"first": first, "rest": rest, "tokens": tokens}


def serve_batch(llm, model, q):
    """All prompts at once; the library decides how it batches them."""
    n = len(q["batch"])
    firsts, lasts, tokens = [0.0] * n, [0.0] * n, [[] for _ in range(n)]
    begin = time.perf_counter()
    handles = [llm.fastllm_lib.launch_response_llm_model(
        model.model, len(ids), (ctypes.c_int * len(ids))(*ids), q["decode"], q["decode"],
        False, 1.0, 1, 1.0, 1.0, False, 0, None) for ids in q["batch"]]
    left = set(range(n))
    while left:
        idle = True
        for i in sorted(left):
            while llm.fastllm_lib.can_fetch_response_llm_model(model.model, handles[i]):
                idle = False
                token = llm.fastllm_lib.fetch_response_llm_model(model.model, handles[i])
                if token < 0:
                    left.discard(i)
                    break
                lasts[i] = time.perf_counter() - begin
                firsts[i] = firsts[i] or lasts[i]
                tokens[i].append(token)
        if idle:
            time.sleep(0.001)
    return {"firsts": firsts, "lasts": lasts, "tokens": tokens}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", required=True)
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--context", type=int, required=True)
    p.add_argument("--prefill", choices=["exact", "replay"], default="exact")
    p.add_argument("--device", default="cpu")
    p.add_argument("--moe-device", default="cpu")
    p.add_argument("--dtype", default="auto")
    p.add_argument("--streams", type=int, default=1)
    args = p.parse_args()
    with tempfile.TemporaryDirectory(prefix="peers-") as directory:
        vocabulary = linked(args.model, directory)
        model = load(directory, args)
        from ftllm import llm
        answer({"ready": True, "threads": args.threads, "version": importlib.metadata.version("ftllm")})
        for line in requests:
            q = json.loads(line)
            answer(serve_batch(llm, model, q) if "batch" in q else serve(llm, model, vocabulary, q))
    answers.flush()


if __name__ == "__main__":
    main()
    os._exit(0)  # ftllm's workers never end
