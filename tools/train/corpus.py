"""Extracts the King James Bible from the Debian packages bible-kjv and bible-kjv-text and splits it.

    python3 corpus.py WORKDIR [--bible DIR]

Writes WORKDIR/train.txt and WORKDIR/heldout.txt: one verse a line, chapters separated by an empty line. Every tenth chapter
(numbers 10, 20, ... counted from Genesis 1) is held out, so both parts cover every kind of text in the book.
DIR is the root below which the packages are unpacked (default /: installed with apt-get).
"""
import argparse
import re
import subprocess
from pathlib import Path

LINE = re.compile(r"^([1-3]?[A-Za-z]+)(\d+):(\d+) (.*)$")


def chapters(root: Path) -> list[str]:
    """Chapters in canonical order, each a string of verses that end in a newline."""
    program = root.resolve() / "usr/bin/bible"
    raw = subprocess.run([program, "-f", "gen1:1-rev22:21"], cwd=root / "usr/lib", capture_output=True, check=True).stdout
    out, last = [], None
    for line in raw.decode("latin-1").splitlines():
        m = LINE.match(line)
        if not m:
            continue
        where, verse = (m[1], m[2]), re.sub(r"\s+", " ", m[4]).strip()
        if where != last:
            out.append("")
            last = where
        out[-1] += verse + "\n"
    assert len(out) == 1189, f"expected the 1189 chapters of the King James Bible, found {len(out)}"
    return out


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("workdir", type=Path)
    ap.add_argument("--bible", type=Path, default=Path("/"))
    a = ap.parse_args()
    a.workdir.mkdir(parents=True, exist_ok=True)
    parts = {"train": [], "heldout": []}
    for i, text in enumerate(chapters(a.bible), 1):
        parts["heldout" if i % 10 == 0 else "train"].append(text)
    for name, texts in parts.items():
        path = a.workdir / f"{name}.txt"
        path.write_text("\n".join(texts), encoding="ascii")
        print(f"{path}: {path.stat().st_size} bytes, {len(texts)} chapters")


if __name__ == "__main__":
    main()
