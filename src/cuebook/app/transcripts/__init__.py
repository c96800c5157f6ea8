"""Import and export transcripts: detect the format, store in batches, write other formats."""

from cuebook.app.transcripts.sniff import read_transcripts
from cuebook.app.transcripts.store import StoreProgress, batches_of, store_transcript
from cuebook.app.transcripts.transcript import Transcript
from cuebook.app.transcripts.write import FORMATS, write_transcript

__all__ = [
    "FORMATS",
    "StoreProgress",
    "Transcript",
    "batches_of",
    "read_transcripts",
    "store_transcript",
    "write_transcript",
]
