"""Pictures of files that pillow opens, with 8 bits per channel."""

from typing import Any

import numpy as np

from lion.data import reading
from lion.optional import need

# Not all that pillow opens: it starts another program, Ghostscript, for some.
FORMATS = ("PNG", "JPEG", "MPO", "GIF", "BMP", "DIB", "WEBP", "TIFF", "PPM", "JPEG2000", "AVIF", "ICO", "TGA")
LONGEST = 1 << 16  # pixels of a side: JPEG has no more


def decode(name: str, source: Any, mode: str = "RGB", remedy: str = "remove it or replace it") -> Any:
    """A pillow image in this mode. `name` and `remedy` are for errors, `source` is a path or an open file."""
    pillow = need("PIL.Image", "pillow", "train")
    pillow.init()  # all of its formats, once
    known = [name for name in FORMATS if name in pillow.OPEN]
    with reading(name, remedy), pillow.open(source, formats=known) as image:
        if max(image.size) > LONGEST:
            raise ValueError(f"it is {image.width:,} x {image.height:,} pixels; expected at most {LONGEST:,} a side")
        white = _white_of(image)
        if white is None:
            return image.convert(mode)
        # pillow clips at 255 where it converts these.
        grey = np.rint(np.asarray(image, dtype=np.float64) * (255 / white)).astype(np.uint8)
        return pillow.fromarray(grey).convert(mode)


def _white_of(image: Any) -> int | None:
    """White of a grey picture with more than 8 bits, None of any other. (Of 16 bits per colour pillow takes 8 itself.)

    65535 where the file has 16 bits. Numbers of 32 bits, in a TIFF, have no white of their own: it is the least of 1
    (for floating-point numbers), 255 and 65535 that none of them exceeds.
    """
    if image.mode.startswith("I;16"):
        return 65535
    if image.mode not in ("I", "F"):
        return None
    if image.format in ("PNG", "PPM"):  # 16 bits, which pillow keeps in 32
        return 65535
    low, high = image.getextrema()
    whites = (255, 65535) if image.mode == "I" else (1, 255, 65535)
    white = next((white for white in whites if 0 <= low <= high <= white), None)
    if white is None:
        raise ValueError(f"its values are {low} to {high}; expected 0 to {' or '.join(map(str, whites))}")
    return white
