"""Compares the PyTorch model with a reader of the exported files that shares no code with it.

    python3 crosscheck.py WORKDIR CHECKPOINT.pt EXPORTED REFERENCE [--chunks N]

REFERENCE is a directory with the NumPy package dsref (Net, State), which computes the exported checkpoint in the canonical
arithmetic. Prints, over N held-out chunks, the relative logit error, agreement of the most likely token and the bits per
byte of both.
"""
import argparse
import math
import sys
from pathlib import Path

import numpy as np
import torch

import data
import model
from evaluate import CHUNK, build, rows


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("workdir", "checkpoint", "exported", "reference"):
        ap.add_argument(name, type=Path)
    ap.add_argument("--chunks", type=int, default=1)
    ap.add_argument("--tokens", type=int, default=CHUNK)
    a = ap.parse_args()
    sys.path.insert(0, str(a.reference))
    from dsref.net import Net, State
    src = data.Source(a.workdir, "heldout")
    net, h = build(src)
    net.load_state_dict(torch.load(a.checkpoint)["net"])
    net.eval()
    ref, bits, size = Net(str(a.exported)), np.zeros(2), 0
    for k in range(a.chunks):
        y = src.ids[k * 7 * CHUNK :][: a.tokens]
        x = np.concatenate([[src.bos], y[:-1]])
        with torch.no_grad():
            t = torch.from_numpy(x)[None]
            ours = net.logits(net(t, rows(h, t), model.EXACT)[0]).numpy()
        theirs = ref.forward(x.tolist(), State())[0]
        error = np.linalg.norm(ours - theirs) / np.linalg.norm(theirs)
        print(f"chunk {k}: relative logit error {error:.4f}, same most likely token {(ours.argmax(-1) == theirs.argmax(-1)).mean():.3f}")
        for i, v in enumerate((ours, theirs)):
            v = v.astype(np.float64)
            logp = v - np.log(np.exp(v - v.max(-1, keepdims=True)).sum(-1, keepdims=True)) - v.max(-1, keepdims=True)
            bits[i] -= logp[np.arange(len(y)), y].sum() / math.log(2)
        size += len(src.t.decode(y.tolist()).encode())
    print(f"bits per byte: PyTorch {bits[0] / size:.4f}, exported checkpoint {bits[1] / size:.4f}")


if __name__ == "__main__":
    main()
