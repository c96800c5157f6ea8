"""Peer program of the redundancy benchmark: finds texts that a later text repeats, in the peer's own environment."""

import json
import sys
import time
from pathlib import Path

from SetSimilaritySearch import all_pairs  # type: ignore[import-not-found]


def main() -> None:
    """Print the CPU seconds of each run and the texts it found."""
    texts = json.loads(Path(sys.argv[1]).read_text())
    seconds = []
    found: set[int] = set()
    for _ in range(3):
        began = time.process_time()
        sets = [set(text.lower().split()) for text in texts]
        pairs = all_pairs(sets, similarity_func_name="jaccard", similarity_threshold=0.9)
        found = {min(int(one), int(other)) for one, other, _ in pairs}
        seconds.append(time.process_time() - began)
    print(json.dumps({"seconds": seconds, "flagged": sorted(found)}))


if __name__ == "__main__":
    main()
