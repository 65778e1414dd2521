#!/usr/bin/env python3
"""Small pictures of every page for docs/, from what shots.mjs has taken. Needs Pillow.

    SHOTS=/tmp/shots node shots.mjs desktop && python3 shrink.py /tmp/shots ../../docs/pages
"""

import pathlib
import sys

from PIL import Image

WIDTH, MOST_BYTES = 720, 40_000


def main():
    source, target = map(pathlib.Path, sys.argv[1:3])
    target.mkdir(parents=True, exist_ok=True)
    for shot in sorted(source.glob("*-desktop-*.png")):
        small = target / shot.name.replace("-desktop", "")
        with Image.open(shot) as picture:
            picture = picture.convert("RGB")
            size = (WIDTH, round(picture.height * WIDTH / picture.width))
            picture = picture.resize(size, Image.Resampling.LANCZOS)
        for colours in (128, 64):
            picture.quantize(colours, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE).save(small, optimize=True)
            if small.stat().st_size <= MOST_BYTES:
                break


main()
