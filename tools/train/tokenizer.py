"""Trains the byte-level BPE of the demo model and derives what the model needs from it.

    python3 tokenizer.py WORKDIR [--merges N]

Reads WORKDIR/train.txt, writes WORKDIR/tokenizer.json with the released pipeline (three Split steps, ByteLevel): ids 0..2 are
the released BOS, EOS and pad, then 256 bytes and the merges, then the released added tokens that prompts and outputs use.
"""
import argparse
import json
import unicodedata
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers import Regex

FIRST = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"]
# spelling -> (special, normalized), as in the released tokenizer.json, in the order of the released ids
LAST = {
    "<｜System｜>": (True, False),
    "<｜fim▁hole｜>": (False, True),
    "<｜fim▁begin｜>": (False, True),
    "<｜fim▁end｜>": (False, True),
    "<｜User｜>": (False, True),
    "<｜Assistant｜>": (False, True),
    "<|EOT|>": (True, True),
    "<think>": (False, False),
    "</think>": (False, False),
    "｜DSML｜": (False, False),
    "<｜latest_reminder｜>": (True, False),
    "<｜action｜>": (True, False),
    "<｜query｜>": (True, False),
    "<｜authority｜>": (True, False),
    "<｜domain｜>": (True, False),
    "<｜task｜>": (True, False),
    "<｜political｜>": (True, False),
    "<｜entity｜>": (True, False),
    "<｜title｜>": (True, False),
    "<｜safety｜>": (True, False),
    "<｜answer｜>": (True, False),
    "<｜search｜>": (True, False),
    "<dsml:": (True, False),
    "</dsml:": (True, False),
    "<｜search▁begin｜>": (True, False),
    "<｜search▁end｜>": (True, False),
    "<｜extracted_url｜>": (True, False),
    "<｜read_url｜>": (True, False),
    "<｜end_of_query｜>": (True, False),
    "<｜rl_image_pad｜>": (True, False),
    "<｜rl_image_start｜>": (True, False),
    "<｜deepseek_image｜>": (True, False),
    "<｜/polygon｜>": (True, False),
    "<｜polygon｜>": (True, False),
    "<｜/point｜>": (True, False),
    "<｜point｜>": (True, False),
    "<｜/box｜>": (True, False),
    "<｜box｜>": (True, False),
    "<｜/ref｜>": (True, False),
    "<｜ref｜>": (True, False),
}
BOS, EOS, PAD, USER, ASSISTANT, END_THINK, IMAGE = (
    *FIRST, "<｜User｜>", "<｜Assistant｜>", "</think>", "<｜deepseek_image｜>")
SPLITS = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]


def pipeline(model: models.BPE) -> Tokenizer:
    t = Tokenizer(model)
    steps = [pre_tokenizers.Split(Regex(s), "isolated") for s in SPLITS]
    t.pre_tokenizer = pre_tokenizers.Sequence(steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return t


def train(text: str, merges: int) -> dict:
    """tokenizer.json as a dictionary."""
    t = pipeline(models.BPE())
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    t.train_from_iterator(text.split("\n\n"), trainers.BpeTrainer(
        vocab_size=256 + merges, initial_alphabet=alphabet, show_progress=False))
    out = json.loads(t.to_str())
    base = sorted(out["model"]["vocab"], key=out["model"]["vocab"].get)
    vocab = FIRST + base
    out["model"]["vocab"] = {s: i for i, s in enumerate(vocab)}
    out["model"]["merges"] = [" ".join(m) for m in out["model"]["merges"]]
    out["normalizer"] = {"type": "Sequence", "normalizers": []}
    out["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    flags = {s: (True, False) for s in FIRST} | LAST
    ids = {s: i for i, s in enumerate(FIRST)} | {s: len(vocab) + i for i, s in enumerate(LAST)}
    out["added_tokens"] = [
        {"id": ids[s], "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": norm, "special": special}
        for s, (special, norm) in flags.items()]
    return out


def _key(text: str, spelling: str) -> str:
    """Compressed-id key of a token (spec 4.12)."""
    if "\ufffd" in text:
        return spelling
    s = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    s = "".join(c.lower() for c in s if not unicodedata.category(c).startswith("M"))
    words, run = [], False
    for c in s:
        if c in " \t\r\n":
            run = True
            continue
        words.append((" " if run else "") + c)
        run = False
    s = "".join(words) + (" " if run else "")
    s = "\ue000" if s == " " else s
    return s.strip().replace("\ue000", " ") or text


def token_map(t: Tokenizer) -> list[int]:
    """Token id -> Engram id, numbered by first appearance."""
    seen: dict[str, int] = {}
    return [seen.setdefault(_key(t.decode([i], skip_special_tokens=False), t.id_to_token(i)), len(seen))
            for i in range(t.get_vocab_size())]


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("workdir", type=Path)
    ap.add_argument("--merges", type=int, default=2261)
    a = ap.parse_args()
    text = (a.workdir / "train.txt").read_text()
    path = a.workdir / "tokenizer.json"
    path.write_text(json.dumps(train(text, a.merges), ensure_ascii=False, indent=1), encoding="utf-8")
    t = Tokenizer.from_file(str(path))
    held = (a.workdir / "heldout.txt").read_text()
    n = len(t.encode(held, add_special_tokens=False).ids)
    classes = max(token_map(t)) + 1
    print(f"{path}: vocabulary {t.get_vocab_size()}, {classes} Engram classes, {len(held) / n:.3f} bytes per held-out token")


if __name__ == "__main__":
    main()
