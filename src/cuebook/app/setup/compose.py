"""Build the engine's dependencies (store, models, embedder, upstream) from the configuration."""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from msgspec import structs

from cuebook.app.setup.experience_files import ExperienceFiles
from cuebook.app.setup.project_files import load_compaction, load_personas, load_profiles
from cuebook.app.setup.project_templates import builtin_prompts
from cuebook.config import SERVERS, Config, StoreConfig, languages_of
from cuebook.engine.core.drafts import PostFactory
from cuebook.engine.core.scheduling import ConversationQueue
from cuebook.engine.core.services import Services, Settings, nothing_restored, read_zone
from cuebook.engine.core.tracing import Tracing
from cuebook.errors import BackendError, InvalidInput
from cuebook.interfaces import Analyzer, Clock, Dice, Embedder, Model, Sink, Upstream
from cuebook.memory.scopes import Policy
from cuebook.prompts.names import check_project
from cuebook.providers.clock_and_ids import SystemClock, SystemDice, database_key
from cuebook.providers.file_sink import FileSink
from cuebook.providers.llama import LlamaModel
from cuebook.providers.local_embedder import AT_ONCE, LocalEmbedder
from cuebook.providers.minilm.embedder import MiniLM
from cuebook.providers.multilingual import Multilingual
from cuebook.providers.openai import HttpUpstream, OpenAIEmbedder, OpenAIModel
from cuebook.providers.recalled_answer import RecalledModel
from cuebook.records.expression import counted
from cuebook.records.memory import DEFAULT_TENANT, Scope
from cuebook.records.redaction import Redactor
from cuebook.signals.sentiment import analyzers_of, methods_of
from cuebook.storage.database.postgres_key import confirm_key, stored_key
from cuebook.storage.database.sqlite_files import MEMORY, rows_in
from cuebook.storage.database.transaction import Failpoints
from cuebook.storage.store import Store, open_store
from cuebook.window.models import CacheRule, rule_for, rule_named
from cuebook.window.tokens import counter


class Within:
    """A proxy of a store for one tenant: it sets the tenant in every Scope argument and marks it as authenticated.

    It wraps all methods generically, so that no method can be forgotten.
    """

    def __init__(self, inner: object, tenant: str) -> None:
        self._inner = inner
        self._tenant = tenant

    def __getattr__(self, name: str) -> Any:
        result = getattr(self._inner, name)
        if callable(result):
            return self._bound(result)
        return result if result is None or isinstance(result, str | int) else Within(result, self._tenant)

    def _bound(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            return method(*map(self._own, given), **{name: self._own(value) for name, value in named.items()})

        return call

    def _own(self, value: Any) -> Any:
        return structs.replace(value, tenant=self._tenant, proven=True) if isinstance(value, Scope) else value


def services_of(services: Services, tenant: str) -> Services:
    """Return a copy of the services for one tenant: with its own store view, queue and caches."""
    store = cast("Store", Within(services.store, tenant))
    queue = services.queue if tenant == DEFAULT_TENANT else ConversationQueue(services.config.server.line)
    ports: dict[str, Any] = {"store": store, "prompts": store.prompts, "audit": store.audit, "queue": queue}
    settings = structs.replace(services.settings, tenant=tenant)
    if tenant != DEFAULT_TENANT:  # only the default tenant has prompt and memory files, and the mirror
        ports |= {"restore_file": nothing_restored, "memory_folder": None}
        settings = structs.replace(settings, audit_mirror=None)
    return structs.replace(services, **ports, settings=settings, caches=services.caches.for_tenant())


#: The environment variable of the secret with which the key in a server's database is encrypted.
KEY_SECRET = "CUEBOOK_KEY_SECRET"  # noqa: S105  # the variable's name
#: The audit log's mirror file, inside the project.
AUDIT = "logs/prompts_audit.jsonl"
#: Timeout in seconds for a server to embed a batch of posts in a background job.
_EMBED_S = 60.0
#: Texts that a server embeds per background call; turns run in between.
_EMBED_AT_ONCE = 64
#: The embedders that run in this process.
LOCAL_EMBEDDERS = (MiniLM, Multilingual)


def compose(
    config: Config,
    *,
    model: Model | None = None,
    clock: Clock | None = None,
    dice: Dice | None = None,
    upstream: Upstream | None = None,
    embedder: Embedder | None = None,
    analyzers: Mapping[str, Analyzer] | None = None,
    sinks: Sequence[Sink] = (),
) -> tuple[Services, Upstream | None]:
    """Open the store and return the engine's services and the upstream. Blocks: call it in a thread."""
    key, count = key_of(config), counter(config.settings.budget.tokens)
    methods = analyzers_of() | dict(analyzers or {})
    model, work_model, upstream = models_of(config, model=model, upstream=upstream)
    embedder = check_numpy(embedder or embedder_of(config))
    settings = _settings(config, methods_of(methods), model=model, embedder=embedder, key=key)
    experience_model = experience_model_of(config, model=model, work_model=work_model, upstream=upstream)
    recall_model = recall_model_of(config, model=model, upstream=upstream)
    failpoints, tracing = Failpoints.from_environment(), _tracing(config)
    secrets, synchronous = config.settings.secrets, config.settings.store.synchronous
    # the store comes last, so that an error above leaves no file open
    store = open_store(database_of(config), synchronous=synchronous, failpoints=failpoints, key=key)
    services = Services(
        store=store,
        prompts=store.prompts,
        audit=store.audit,
        model=model,
        work_model=work_model,
        experience_model=experience_model,
        recall_model=recall_model,
        embedder=embedder,
        analyzers=methods,
        clock=clock or SystemClock(),
        dice=dice or SystemDice(),
        writer=PostFactory(count, Redactor(key) if secrets.redact else None, config.settings.server.max_post),
        count=count,
        queue=ConversationQueue(config.settings.server.line),
        config=config.settings,
        settings=settings,
        tracing=tracing,
        failpoint=failpoints,
        sinks={sink.name: sink for sink in sinks},
        experiences=None if config.settings.experience.selection == "off" else experience_files(config),
    )
    return services, upstream


def _tracing(config: Config) -> Tracing:
    """Return the tracing that the settings ask for. Raises InvalidInput."""
    settings = config.settings.traces
    if settings.exporter == "none":
        return Tracing()
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        msg = "OpenTelemetry is not installed. Install cuebook[otel]."
        raise InvalidInput(msg, where="traces.exporter") from None
    if settings.exporter == "global":
        return Tracing(trace.get_tracer("cuebook"), content=settings.content)
    name = os.environ.get("OTEL_SERVICE_NAME", "cuebook")
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(provider.get_tracer("cuebook"), provider=provider, content=settings.content)


def _settings(
    config: Config, methods: tuple[str, ...], *, model: Model, embedder: Embedder | None, key: bytes
) -> Settings:
    """Return the engine's settings, with the personas, profiles and compaction of the project's files."""
    values, limits = config.settings, config.settings.budget
    if isinstance(model, LlamaModel):  # it reports its context size itself
        limits = structs.replace(limits, context=min(limits.context, model.context))
    personas, default = load_personas(config, methods)
    return Settings(
        limits=limits,
        sets_context=config.sets("budget.context"),
        model_url=model.base_url if isinstance(model, OpenAIModel) else "",
        embed_at_once=AT_ONCE if isinstance(embedder, LocalEmbedder) else _EMBED_AT_ONCE,
        key=key,
        personas=personas,
        default_persona=default,
        profiles=load_profiles(config, methods),
        compaction=load_compaction(config),
        project=check_project(values.prompts.project, where="prompts.project"),
        builtin=builtin_prompts(),
        audit_mirror=_audit_mirror(config),
        key_file=key_file_of(config),
        memory_policy=_policy(config),
        keyed_policy=_policy(config, unset=True),
        zone=read_zone(values.memory.time_zone, "memory.time_zone"),
        cache_rule=_cache_rule(config),
    )


def sinks_of(config: Config, sinks: Sequence[Sink]) -> tuple[Sink, ...]:
    """Return the sinks with the one of the settings' file. Raises InvalidInput for a duplicate name."""
    label = config.settings.memory.sink
    sinks = (*sinks, *([FileSink(Path(config.folder) / label)] if label else []))
    names = [each.name for each in sinks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        msg = f"sinks: duplicate name {twice!r}. Give each sink its own name."
        raise InvalidInput(msg, where="sinks")
    return sinks


def experience_files(config: Config) -> ExperienceFiles:
    """Return the project's experience files without reading them."""
    folder = config.settings.experience.folder
    return ExperienceFiles(Path(config.folder) / folder, shown=folder)


def experience_model_of(
    config: Config, *, model: Model, work_model: Model | None, upstream: Upstream | None
) -> Model | None:
    """Return the model that selects experiences, None for selection by similarity. Raises InvalidInput."""
    settings = config.settings.experience
    if settings.selection in ("off", "similarity"):
        return None
    if settings.model:
        return _named(config, settings.model, upstream, where="experience.model")
    if settings.selection == "auto":
        return work_model
    if work_model is None and isinstance(model, RecalledModel):
        msg = 'experience.selection: "model" needs a model. Set model.provider, or experience.selection = "auto".'
        raise InvalidInput(msg, where="experience.selection")
    return work_model or model


def recall_model_of(config: Config, *, model: Model, upstream: Upstream | None) -> Model | None:
    """Return the model that helps searches, None if none is set. Raises InvalidInput."""
    name = config.settings.memory.recall_model
    if not name:
        return None
    return model if name == model.name else _named(config, name, upstream, where="memory.recall_model")


def _named(config: Config, name: str, upstream: Upstream | None, *, where: str) -> Model:
    """Return another model of the configured model server or of the upstream."""
    if model := _model(config, name):
        return model
    if isinstance(upstream, HttpUpstream):
        return OpenAIModel(name, upstream)
    msg = f"{where}: no server configured for {name!r}. Set model.provider or upstream.url."
    raise InvalidInput(msg, where=where)


def _policy(config: Config, *, unset: bool = False) -> Policy:
    """Return the memory scopes that the settings enable, and with `unset` also those not set."""
    memory = config.settings.memory

    def on(scope: str) -> bool:
        return getattr(memory, scope) is True or (unset and not config.sets(f"memory.{scope}"))

    return Policy(user=on("user"), persona=on("persona"), organization=on("organization"))


def models_of(
    config: Config, *, model: Model | None = None, upstream: Upstream | None = None
) -> tuple[Model, Model | None, Upstream | None]:
    """Return the answering model, the background-job model and the upstream. Raises InvalidInput."""
    upstream = upstream or _upstream(config)
    settings = config.settings
    model = model or _model(config, settings.model.name) or RecalledModel(upstream=bool(settings.upstream.url))
    return model, _work_model(config, model, upstream), upstream


def database_of(config: Config) -> str:
    """Return the database file, the URL of a PostgreSQL server, or MEMORY."""
    url = config.settings.store.url
    if url == MEMORY or url.startswith(SERVERS):
        return url
    return str(Path(config.folder) / url.removeprefix("sqlite:///"))


def file_beside_database(config: Config, ending: str) -> Path | None:
    """Return the file with the name of the database file and this ending, None for a database in memory.

    For a database on a server, it is in the project, with the default name.
    """
    database = database_of(config)
    if database.startswith(SERVERS):
        database = str(Path(config.folder) / StoreConfig().url)
        Path(database).parent.mkdir(parents=True, exist_ok=True)
    return None if database == MEMORY else Path(f"{database}{ending}")


def _audit_mirror(config: Config) -> Path | None:
    """Return the audit log's mirror: a file of the project, or beside a database elsewhere. None for one in memory."""
    database = database_of(config)
    if database == MEMORY:
        return None
    place, project = os.path.normpath(Path(database).absolute()), os.path.normpath(Path(config.folder).absolute())
    if database.startswith(SERVERS) or Path(place).is_relative_to(project):
        return Path(config.folder) / AUDIT
    return file_beside_database(config, ".audit.jsonl")


def key_file_of(config: Config) -> Path | None:
    """Return the file of the database key, None for a key in memory or in a server's database."""
    name = config.settings.secrets.key_file
    if name:
        return Path(config.folder) / name
    return None if database_of(config).startswith(SERVERS) else file_beside_database(config, ".key")


def key_of(config: Config, *, new: bytes = b"") -> bytes:
    """Return the key of API keys, receipts and audit records; `new` is stored if there is none. Blocks.

    All machines of a server's database need the same key, so it is not created without `new`. Raises InvalidInput.
    """
    file, database = key_file_of(config), database_of(config)
    if not database.startswith(SERVERS):
        check_key_file(config)
        return database_key(file, new=new)
    if file is not None:
        if not new and not file.exists():
            msg = f"secrets.key_file: {file} does not exist. Copy it from another machine, or run `cuebook db init`."
            raise InvalidInput(msg, where="secrets.key_file")
        key = database_key(file, new=new)
    elif secret := os.environ.get(KEY_SECRET, ""):
        key = stored_key(database, secret, new=new)
    else:
        msg = f"A PostgreSQL database needs a key. Set {KEY_SECRET}, or secrets.key_file to a file on each machine."
        raise InvalidInput(msg, where="secrets.key_file")
    confirm_key(database, key, store=bool(new))
    return key


def check_key_file(config: Config) -> None:
    """Raise BackendError if a database file has API keys, and the file of the key that they need is missing. Blocks."""
    file, database = key_file_of(config), database_of(config)
    if database.startswith(SERVERS) or file is None or file.exists() or not Path(database).is_file():
        return
    try:
        [(count,)] = rows_in(database, "SELECT count(*) FROM api_key")
    except BackendError:  # it has no tables yet, or the store reports the damage
        return
    if count:
        needed = f"{counted(count, 'API key')} of the database, the receipts and the audit log need it"
        msg = f"Key file not found: {str(file)!r}. {needed}. Restore it from a backup. To give them up, write"
        raise BackendError(f"{msg} 64 hexadecimal digits to the file, and create new API keys.")


def _upstream(config: Config) -> HttpUpstream | None:
    settings = config.settings.upstream
    if not settings.url:
        return None
    return HttpUpstream(
        settings.url,
        forward_auth=settings.forward_auth,
        api_key_env=settings.api_key_env,
        own_key_first="upstream.forward_auth" not in config.origins,  # clients without a key send a placeholder
        connect_timeout_s=settings.connect_timeout_s,
        read_timeout_s=settings.read_timeout_s,
    )


def _model(config: Config, name: str) -> Model | None:
    """Return a model of the configured provider, None without one."""
    settings, budget = config.settings.model, config.settings.budget
    if settings.provider == "none":
        return None
    if settings.provider == "openai":
        server = HttpUpstream(
            settings.base_url, forward_auth=False, api_key_env=settings.api_key_env, read_timeout_s=settings.timeout_s
        )
        return OpenAIModel(name, server)
    llama_model = LlamaModel(name, folder=Path(config.folder), context=budget.context, reply=budget.reply)
    if llama_model.context <= budget.reply:
        size = f"{llama_model.context:,} tokens"
        msg = f"budget.reply: {budget.reply:,} tokens. Must be below the context of {llama_model.name}, {size}."
        raise InvalidInput(msg, where="budget.reply")
    return llama_model


def check_numpy(embedder: Embedder | None) -> Embedder | None:
    """Return the embedder if numpy is installed to compare its vectors. Raises InvalidInput."""
    if embedder is not None and find_spec("numpy") is None:
        msg = "embedder.provider: numpy is not installed. Install cuebook[embeddings]."
        raise InvalidInput(msg, where="embedder.provider")
    return embedder


def embedder_of(config: Config) -> Embedder | None:
    """Return the configured embedder without loading it, None if none is configured. Raises InvalidInput."""
    settings = config.settings.embedder
    if settings.provider == "none":
        return None
    for local in LOCAL_EMBEDDERS:
        if local.provider == settings.provider:
            return local()
    upstream = HttpUpstream(
        settings.base_url, forward_auth=False, api_key_env=settings.api_key_env, read_timeout_s=_EMBED_S
    )
    return OpenAIEmbedder(settings.name, upstream, akin=settings.akin, languages=languages_of(settings))


def _work_model(config: Config, model: Model, upstream: Upstream | None) -> Model | None:
    which, name = config.settings.work.model, config.settings.work.model_name
    if which == "none":
        is_named = name and not config.sets("work.model")
        return _named(config, name, upstream, where="work.model_name") if is_named else None
    if which == "model":
        if isinstance(model, RecalledModel):
            msg = 'work.model: "model" needs [model]. Set model.provider, or work.model = "none".'
            raise InvalidInput(msg, where="work.model")
        return _named(config, name, None, where="work.model_name") if name else model
    name = name or config.settings.model.name
    if not isinstance(upstream, HttpUpstream) or not name:
        missing = [] if isinstance(upstream, HttpUpstream) else ["upstream.url (or --upstream)"]
        missing += [] if name else ["work.model_name"]
        msg = f'work.model: "upstream" needs {" and ".join(missing)}. Set what is missing, or work.model = "none".'
        raise InvalidInput(msg, where="work.model")
    return OpenAIModel(name, upstream)


def _cache_rule(config: Config) -> CacheRule | None:
    """Return the provider's prompt-cache rule; a longest-prefix rule for an unknown provider."""
    settings = config.settings
    name = settings.upstream.cache_rule
    if name == "off":
        return None
    if name != "auto":
        return rule_named(name)
    url = settings.upstream.url or (settings.model.base_url if settings.model.provider == "openai" else "")
    return rule_for(settings.model.name, url or None) or rule_named("openai-prefix")
