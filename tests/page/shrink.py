#!/usr/bin/env python3
"""Small pictures of every page for docs/, from what shots.mjs has taken. Needs Pillow.

    SHOTS=/tmp/shots node shots.mjs desktop && python3 shrink.py /tmp/shots ../../docs/pages
"""

import pathlib
import sys

from PIL import Image

WIDTH, MOST_BYTES = 1000, 36_000


def main():
    source, target = map(pathlib.Path, sys.argv[1:3])
    target.mkdir(parents=True, exist_ok=True)
    for old in [*target.glob("*.png"), *target.glob("*.webp")]:
        old.unlink()
    for shot in sorted(source.glob("*-desktop-*.png")):
        small = target / shot.with_suffix(".webp").name.replace("-desktop", "")
        with Image.open(shot) as picture:
            picture = picture.convert("RGB")
            size = (WIDTH, round(picture.height * WIDTH / picture.width))
            picture = picture.resize(size, Image.Resampling.LANCZOS)
        for quality in (70, 55, 40):
            picture.save(small, quality=quality, method=6)
            if small.stat().st_size <= MOST_BYTES:
                break


main()
