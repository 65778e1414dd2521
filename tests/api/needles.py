"""Finds secrets in whatever bytes: as they are, in hexadecimal, base64, UTF-16, and also parts.

Every secret is cut into short windows, and every window of the bytes is looked up among them. So it
takes one walk over the bytes, however many secrets there are, and half a secret is found as well.
"""

import base64
import re

# Windows are as short as chance allows: random letters and digits in 8, hexadecimal digits and
# decimal ones, of which bytes are full anyway, in more.
SHORT, HEXED, DIGITS = 8, 14, 16
RUN = re.compile(rb"[A-Za-z0-9]{8,}")


class Needles:
    """What is looked for."""

    def __init__(self, secrets):
        self.of = {SHORT: {}, HEXED: {}, DIGITS: {}}
        for secret in secrets:
            for needle in secret.needles:
                for form in forms(needle.encode()):
                    self.add(form, secret)

    def add(self, form, secret):
        for run in RUN.findall(form):
            if run.isdigit():
                size = DIGITS
            elif re.fullmatch(rb"[0-9a-f]+|[0-9A-F]+", run):
                size = HEXED
            else:
                size = SHORT
            for at in range(0, len(run) - size + 1, 2 if size == SHORT else 1):
                window = run[at:at + size]
                # A part that is hexadecimal by itself may be anything, if it is no longer.
                if size == SHORT and re.fullmatch(rb"[0-9a-f]+|[0-9A-F]+", window):
                    size_here, window = HEXED, run[at:at + HEXED]
                    if len(window) < HEXED:
                        continue
                else:
                    size_here = size
                self.of[size_here].setdefault(window, secret)

    def found_in(self, data):
        """The secrets of which something is in there, with the bytes around the first place."""
        found = {}
        # Without what stands between the bytes of UTF-16, and without escapes.
        for text in (data, data.replace(b"\0", b""), data.replace(b"\\", b"")):
            for match in RUN.finditer(text):
                run, start = match[0], match.start()
                for size, windows in self.of.items():
                    for at in range(len(run) - size + 1):
                        secret = windows.get(run[at:at + size])
                        if secret and secret not in found:
                            place = start + at
                            found[secret] = text[max(0, place - 100):place + 60]
        # Cards in groups are no runs.
        for match in re.finditer(rb"(?<!\d)\d{4}([ -])\d{4}\1\d{4}\1\d{4}(?!\d)", data):
            secret = self.of[DIGITS].get(re.sub(rb"\D", b"", match[0]))
            if secret:
                found.setdefault(secret, match[0])
        return found


def forms(needle):
    """A needle as it may have been written."""
    yield needle
    yield needle.hex().encode()
    yield needle.hex().upper().encode()
    for shift in range(3):
        packed = base64.b64encode(b"\0" * shift + needle)
        # Only what no neighbour has a part in.
        yield packed[4 if shift else 0:-4]
