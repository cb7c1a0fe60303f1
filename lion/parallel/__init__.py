"""One sequence over many processes."""

from lion.parallel.sequence import piece_of as piece_of
from lion.parallel.sequence import sequence_parallel as sequence_parallel
