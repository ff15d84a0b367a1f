"""Bits per byte, recall and samples of a training checkpoint, computed by the PyTorch model with every quantiser on.

    python3 evaluate.py WORKDIR CHECKPOINT.pt [--limit CHUNKS] [--chat TEXT | --text TEXT]

With --chat or --text it only writes a continuation (temperature 0.7, seeded).
"""
import argparse
import json
import math
from collections import defaultdict
from pathlib import Path

import torch
import torch.nn.functional as F

import model
from engram import Hash
from geometry import TEXT
from tokenizer import token_map

CHUNK = 512


def build(src):
    """(net, hash) for the tokenizer of src."""
    h = Hash(TEXT, token_map(src.t))
    return model.Net(TEXT, {layer: h.rows(layer) for layer in h.layers}), h


def rows(h, ids):
    return {layer: torch.from_numpy(h(layer, ids.numpy())) for layer in h.layers}


@torch.no_grad()
def bits_per_byte(net, h, src, mode, limit=None):
    """Chunks of 512 predicted tokens, each after its own BOS: total bits over the bytes of the predicted tokens."""
    net.eval()
    ids = torch.from_numpy(src.ids)
    n = len(ids) // CHUNK
    starts = list(range(0, n * CHUNK, CHUNK))
    if limit and limit < n:
        starts = starts[:: n // limit][:limit]
    bits = size = 0
    for group in (starts[i : i + 4] for i in range(0, len(starts), 4)):
        y = torch.stack([ids[a : a + CHUNK] for a in group])
        x = torch.cat([torch.full((len(y), 1), src.bos), y[:, :-1]], 1)
        out, _ = net(x, rows(h, x), mode)
        bits += F.cross_entropy(net.logits(out), y.flatten(), reduction="sum").item() / math.log(2)
        size += sum(len(src.t.decode(r.tolist()).encode()) for r in y)
    net.train()
    return bits / size


@torch.no_grad()
def recall(net, h, src, cases, mode):
    """Share of cases whose answer token is the most likely next token, by distance in windows."""
    net.eval()
    right, total, w = defaultdict(int), defaultdict(int), TEXT["sliding_window"]
    for c in cases:
        ids = [src.bos] + src.encode(c["prompt"])
        x = torch.tensor([ids + [src.bos] * (-len(ids) % w)])
        out, _ = net(x, rows(h, x), mode)
        d = c["distance_windows"]
        right[d] += int(net.logits(out[len(ids) - 1]).argmax()) == src.encode(c["answer"])[0]
        total[d] += 1
    net.train()
    return {d: right[d] / total[d] for d in total}


@torch.no_grad()
def sample(net, h, ids, stop, count, temperature=0.7, seed=0):
    """Continues ids by up to count tokens, recomputing the whole sequence for every token."""
    net.eval()
    g, out = torch.Generator().manual_seed(seed), list(ids)
    while len(out) < len(ids) + count:
        x = torch.tensor([out + [0] * (-len(out) % TEXT["sliding_window"])])
        logits = net.logits(net(x, rows(h, x), model.EXACT)[0][len(out) - 1])
        token = int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=g))
        if token == stop:
            break
        out.append(token)
    return out[len(ids) :]


def main() -> None:
    import data
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("workdir", type=Path)
    ap.add_argument("checkpoint", type=Path)
    ap.add_argument("--limit", type=int)
    ap.add_argument("--chat")
    ap.add_argument("--text")
    a = ap.parse_args()
    src = data.Source(a.workdir, "heldout")
    net, h = build(src)
    net.load_state_dict(torch.load(a.checkpoint)["net"])
    if a.chat or a.text:
        ids = [src.bos] + (src.encode(a.text) if a.text else
                           [src.user] + src.encode(a.chat) + [src.assistant, src.no_think])
        print(src.t.decode(sample(net, h, ids, src.eos, 120)))
        return
    cases = json.loads((a.workdir / "recall.json").read_text())["cases"]
    print("bits per byte:", bits_per_byte(net, h, src, model.EXACT, a.limit))
    print("recall:", recall(net, h, src, cases, model.EXACT))


if __name__ == "__main__":
    main()
