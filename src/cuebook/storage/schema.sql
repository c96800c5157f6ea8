-- The tables and indexes of the database, in SQLite's dialect; `ddl` translates them for PostgreSQL.
--
-- `tenant` comes first in every key of more than one column, and `conversation` is the number of the conversation's row.
-- A table with a key of its own stores its rows in the order of the key, WITHOUT ROWID.

CREATE TABLE schema_version (
    version INTEGER NOT NULL,
    PRIMARY KEY (version)
) WITHOUT ROWID;

CREATE TABLE conversation (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, id TEXT NOT NULL, user_id TEXT, persona TEXT,
    participants TEXT NOT NULL, speakers TEXT NOT NULL, metadata TEXT NOT NULL, head INTEGER NOT NULL,
    last_seq INTEGER NOT NULL, turns INTEGER NOT NULL, generation INTEGER NOT NULL, created_at REAL NOT NULL,
    updated_at REAL NOT NULL, fence INTEGER NOT NULL, lease_turn INTEGER NOT NULL, lease_until REAL NOT NULL,
    open_round INTEGER NOT NULL, mark INTEGER NOT NULL, backlog INTEGER NOT NULL, backlog_tokens INTEGER NOT NULL,
    compact_not_before REAL NOT NULL, compact_last_at REAL NOT NULL, compact_failures INTEGER NOT NULL,
    lease_holder TEXT, company TEXT NOT NULL DEFAULT '[]', utility INTEGER NOT NULL DEFAULT 0,
    opening BLOB, ending BLOB
);
CREATE UNIQUE INDEX conversation_id ON conversation (tenant, id);
CREATE INDEX conversation_recent ON conversation (tenant, updated_at);
CREATE INDEX conversation_backlog ON conversation (backlog) WHERE backlog > 0;
CREATE INDEX conversation_opening ON conversation (tenant, opening) WHERE opening IS NOT NULL;
CREATE INDEX conversation_ending ON conversation (tenant, ending) WHERE ending IS NOT NULL;
CREATE INDEX conversation_lease ON conversation (lease_until) WHERE lease_until > 0;

CREATE TABLE post (
    tenant TEXT NOT NULL, conversation INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL,
    parent INTEGER NOT NULL, run_start INTEGER NOT NULL, run_parent INTEGER NOT NULL, round INTEGER NOT NULL,
    sender TEXT NOT NULL, recipient TEXT NOT NULL, role TEXT NOT NULL, state TEXT NOT NULL, message TEXT, small TEXT,
    parts BLOB, wire BLOB, body BLOB, created_at REAL NOT NULL, tokens INTEGER NOT NULL, small_tokens INTEGER NOT NULL,
    path_tokens INTEGER NOT NULL, path_count INTEGER NOT NULL, digest BLOB NOT NULL, chain BLOB,
    PRIMARY KEY (tenant, conversation, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX post_id ON post (tenant, conversation, id);
CREATE INDEX post_digest ON post (tenant, digest);
CREATE INDEX post_chain ON post (tenant, chain, conversation) WHERE chain IS NOT NULL;

CREATE TABLE turn (
    tenant TEXT NOT NULL, conversation INTEGER NOT NULL, n INTEGER NOT NULL, round INTEGER NOT NULL,
    state TEXT NOT NULL, waiting INTEGER NOT NULL, query_seq INTEGER NOT NULL, reply_seq INTEGER NOT NULL,
    steps INTEGER NOT NULL, fence INTEGER NOT NULL, metadata TEXT NOT NULL, created_at REAL NOT NULL, closed_at REAL,
    PRIMARY KEY (tenant, conversation, n)
) WITHOUT ROWID;
CREATE INDEX turn_round ON turn (tenant, conversation, round);
CREATE INDEX turn_waiting ON turn (tenant, conversation, waiting) WHERE waiting > 0;

CREATE TABLE step (
    tenant TEXT NOT NULL, conversation INTEGER NOT NULL, turn INTEGER NOT NULL, n INTEGER NOT NULL, state TEXT NOT NULL,
    manifest BLOB NOT NULL, base INTEGER NOT NULL, moves_head INTEGER NOT NULL, partial BLOB,
    reply_seq INTEGER NOT NULL, reply_usage BLOB, error TEXT NOT NULL,
    PRIMARY KEY (tenant, conversation, turn, n)
) WITHOUT ROWID;

CREATE TABLE parallel_turn (
    tenant TEXT NOT NULL, conversation INTEGER NOT NULL, turn INTEGER NOT NULL, lease_until REAL NOT NULL,
    lease_holder TEXT, PRIMARY KEY (tenant, conversation, turn)
) WITHOUT ROWID;

CREATE TABLE summary (
    tenant TEXT NOT NULL, conversation INTEGER NOT NULL, version INTEGER NOT NULL, previous INTEGER NOT NULL,
    upto_seq INTEGER NOT NULL, upto_at REAL NOT NULL, path_digest BLOB NOT NULL, markdown TEXT NOT NULL,
    memory_json TEXT NOT NULL, tainted TEXT NOT NULL, profile TEXT NOT NULL, made_by TEXT NOT NULL,
    tokens INTEGER NOT NULL, created_at REAL NOT NULL, corrected INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, conversation, version)
) WITHOUT ROWID;

CREATE TABLE item (
    tenant TEXT NOT NULL, conversation INTEGER NOT NULL, id TEXT NOT NULL, made_in INTEGER NOT NULL, ended_in INTEGER,
    category TEXT NOT NULL, text TEXT NOT NULL, subject TEXT NOT NULL, name TEXT NOT NULL, status TEXT NOT NULL,
    sources TEXT NOT NULL, trust TEXT NOT NULL, confidence REAL NOT NULL, weight REAL NOT NULL,
    valid_from REAL NOT NULL, valid_to REAL, supersedes TEXT, superseded_by TEXT, seq INTEGER NOT NULL,
    speaker TEXT NOT NULL DEFAULT '', PRIMARY KEY (tenant, conversation, id, made_in)
) WITHOUT ROWID;

CREATE TABLE blob (
    tenant TEXT NOT NULL, digest BLOB NOT NULL, body BLOB NOT NULL
);
CREATE UNIQUE INDEX blob_digest ON blob (tenant, digest);

CREATE TABLE blob_use (
    tenant TEXT NOT NULL, digest BLOB NOT NULL, conversation INTEGER NOT NULL,
    PRIMARY KEY (tenant, digest, conversation)
) WITHOUT ROWID;
CREATE INDEX blob_use_conversation ON blob_use (tenant, conversation);

CREATE TABLE idempotency (
    tenant TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, conversation INTEGER NOT NULL, turn INTEGER NOT NULL,
    response BLOB NOT NULL, created_at REAL NOT NULL,
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;
CREATE INDEX idempotency_age ON idempotency (created_at);

CREATE TABLE prompt_branch (
    tenant TEXT NOT NULL, slug TEXT NOT NULL, name TEXT NOT NULL, head INTEGER NOT NULL, active INTEGER NOT NULL,
    PRIMARY KEY (tenant, slug, name)
) WITHOUT ROWID;

CREATE TABLE prompt_version (
    tenant TEXT NOT NULL, slug TEXT NOT NULL, branch TEXT NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL,
    rolled_back INTEGER NOT NULL, weight REAL NOT NULL, observations INTEGER NOT NULL, evidence BLOB NOT NULL
);
CREATE UNIQUE INDEX prompt_version_place ON prompt_version (tenant, slug, branch, number);
CREATE INDEX prompt_version_marked ON prompt_version (tenant, slug, branch, number) WHERE rolled_back = 1;

CREATE TABLE prompt_label (
    tenant TEXT NOT NULL, slug TEXT NOT NULL, name TEXT NOT NULL, branch TEXT NOT NULL, number INTEGER NOT NULL,
    moved_by TEXT NOT NULL, moved_at REAL NOT NULL,
    PRIMARY KEY (tenant, slug, name)
) WITHOUT ROWID;

CREATE TABLE prompt_event (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, slug TEXT NOT NULL, body BLOB NOT NULL,
    branch TEXT NOT NULL DEFAULT '', kind TEXT NOT NULL DEFAULT ''
);
CREATE INDEX prompt_event_of ON prompt_event (tenant, slug, no);
CREATE INDEX prompt_event_on ON prompt_event (tenant, slug, branch, no) WHERE kind <> 'label';

CREATE TABLE prompt_observation (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, slug TEXT NOT NULL, branch TEXT NOT NULL,
    number INTEGER NOT NULL, user_id TEXT NOT NULL, counted REAL NOT NULL, body BLOB NOT NULL,
    revised INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX prompt_observation_of ON prompt_observation (tenant, slug, branch, number, no);
CREATE INDEX prompt_observation_revised ON prompt_observation (tenant, slug, branch, revised) WHERE revised > 0;

CREATE TABLE audit_record (
    tenant TEXT NOT NULL, seq INTEGER NOT NULL, hash TEXT NOT NULL, body BLOB NOT NULL, texts BLOB NOT NULL
);
CREATE UNIQUE INDEX audit_record_place ON audit_record (tenant, seq);

CREATE TABLE audit_checkpoint (
    tenant TEXT NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (tenant, size)
) WITHOUT ROWID;

CREATE TABLE place (
    tenant TEXT NOT NULL, kind TEXT NOT NULL, owner TEXT NOT NULL, of_user TEXT, generation INTEGER NOT NULL,
    said INTEGER NOT NULL, said_at REAL NOT NULL,
    PRIMARY KEY (tenant, kind, owner)
) WITHOUT ROWID;
CREATE INDEX place_said ON place (said_at);
CREATE INDEX place_of ON place (tenant, of_user);

CREATE TABLE memory (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, kind TEXT NOT NULL, owner TEXT NOT NULL,
    id TEXT NOT NULL, category TEXT NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL, subject TEXT NOT NULL,
    status TEXT NOT NULL, trust TEXT NOT NULL, confidence REAL NOT NULL, weight REAL NOT NULL, uses INTEGER NOT NULL,
    used_at REAL NOT NULL, decayed_at REAL NOT NULL, valid_from REAL NOT NULL, valid_to REAL, supersedes TEXT,
    ended_by TEXT, repeated_at REAL NOT NULL, written INTEGER NOT NULL, said INTEGER NOT NULL, created_at REAL NOT NULL,
    updated_at REAL NOT NULL, standing INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX memory_id ON memory (tenant, id, kind, owner);
CREATE INDEX memory_order ON memory (tenant, kind, owner, no);
CREATE UNIQUE INDEX memory_said ON memory (tenant, kind, owner, said);
CREATE INDEX memory_standing ON memory (tenant, kind, owner, confidence) WHERE valid_to IS NULL;
CREATE INDEX memory_always ON memory (tenant, kind, owner, confidence) WHERE standing = 1;
CREATE INDEX memory_idle ON memory (used_at);
CREATE INDEX memory_superseded ON memory (tenant, kind, owner, supersedes) WHERE supersedes IS NOT NULL;
CREATE INDEX memory_ended ON memory (tenant, kind, owner, ended_by) WHERE ended_by IS NOT NULL;

CREATE TABLE memory_source (
    tenant TEXT NOT NULL, memory INTEGER NOT NULL, conversation INTEGER NOT NULL, post TEXT NOT NULL,
    PRIMARY KEY (tenant, memory, conversation, post)
) WITHOUT ROWID;
CREATE INDEX memory_source_of ON memory_source (tenant, conversation);

CREATE TABLE delivery (
    tenant TEXT NOT NULL, conversation INTEGER NOT NULL, seq INTEGER NOT NULL, version INTEGER NOT NULL,
    due INTEGER NOT NULL,
    PRIMARY KEY (tenant, conversation)
) WITHOUT ROWID;
CREATE INDEX delivery_due ON delivery (tenant, conversation) WHERE due = 1;

CREATE TABLE correction (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, conversation INTEGER NOT NULL,
    posts TEXT NOT NULL, marks TEXT NOT NULL, text TEXT NOT NULL, due INTEGER NOT NULL
);
CREATE INDEX correction_of ON correction (tenant, conversation, no);
CREATE INDEX correction_due ON correction (tenant, conversation) WHERE due = 1;

CREATE TABLE outbox (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, conversation INTEGER NOT NULL,
    version INTEGER NOT NULL, sink TEXT NOT NULL
);
CREATE INDEX outbox_of ON outbox (tenant, conversation);

CREATE TABLE vector (
    tenant TEXT NOT NULL, scope TEXT NOT NULL, model TEXT NOT NULL, ref INTEGER NOT NULL, part INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant, scope, model, ref, part)
) WITHOUT ROWID;

CREATE TABLE embedded (
    tenant TEXT NOT NULL, scope TEXT NOT NULL, model TEXT NOT NULL, owner TEXT NOT NULL, upto INTEGER NOT NULL,
    vectors INTEGER NOT NULL, began REAL NOT NULL,
    PRIMARY KEY (tenant, scope, model)
) WITHOUT ROWID;
CREATE INDEX embedded_owner ON embedded (tenant, owner, model, began);

CREATE TABLE api_key (
    tenant TEXT NOT NULL, id TEXT NOT NULL, digest BLOB NOT NULL, role TEXT NOT NULL, user_id TEXT,
    organizations TEXT NOT NULL, name TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL, revoked_at REAL,
    spent_on INTEGER NOT NULL DEFAULT 0, tokens_spent INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX api_key_id ON api_key (id);

CREATE TABLE organization (
    tenant TEXT NOT NULL, id TEXT NOT NULL, settings TEXT NOT NULL, updated_at REAL NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE TABLE tuning (
    tenant TEXT NOT NULL, conversation INTEGER NOT NULL, parameters TEXT NOT NULL, seen_seq INTEGER NOT NULL,
    updated_at REAL NOT NULL,
    PRIMARY KEY (tenant, conversation)
) WITHOUT ROWID;

CREATE TABLE optimization (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, tenant TEXT NOT NULL, conversation INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX optimization_of ON optimization (tenant, conversation, no);

CREATE TABLE work (
    tenant TEXT NOT NULL, conversation INTEGER NOT NULL, task TEXT NOT NULL, model TEXT NOT NULL,
    currency TEXT NOT NULL, calls INTEGER NOT NULL, input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL, cost REAL NOT NULL,
    PRIMARY KEY (tenant, conversation, task, model, currency)
) WITHOUT ROWID;

CREATE TABLE receipt (
    tenant TEXT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL, body BLOB NOT NULL, created_at REAL NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX receipt_pending ON receipt (tenant, state) WHERE state = 'pending';

CREATE TABLE participant (
    tenant TEXT NOT NULL, user_id TEXT NOT NULL, conversation INTEGER NOT NULL,
    PRIMARY KEY (tenant, user_id, conversation)
) WITHOUT ROWID;
CREATE INDEX participant_conversation ON participant (tenant, conversation);

CREATE TABLE epoch (
    tenant TEXT NOT NULL, kind TEXT NOT NULL, owner TEXT NOT NULL, epoch INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, owner)
) WITHOUT ROWID;

CREATE TABLE reflection (
    tenant TEXT NOT NULL, conversation INTEGER NOT NULL, turn INTEGER NOT NULL, n INTEGER NOT NULL,
    due INTEGER NOT NULL, calls TEXT NOT NULL, body TEXT,
    PRIMARY KEY (tenant, conversation, turn, n)
) WITHOUT ROWID;
CREATE INDEX reflection_due ON reflection (tenant, conversation) WHERE due = 1;

CREATE TABLE outcome (
    tenant TEXT NOT NULL, conversation INTEGER NOT NULL, turn INTEGER NOT NULL, due INTEGER NOT NULL,
    revision INTEGER NOT NULL, user_id TEXT NOT NULL, body BLOB NOT NULL, taught BLOB NOT NULL,
    PRIMARY KEY (tenant, conversation, turn)
) WITHOUT ROWID;
CREATE INDEX outcome_due ON outcome (tenant, conversation, turn) WHERE due = 1;

CREATE TABLE claim (
    tenant TEXT NOT NULL, job TEXT NOT NULL, piece TEXT NOT NULL, holder TEXT NOT NULL, until REAL NOT NULL,
    PRIMARY KEY (tenant, job, piece)
) WITHOUT ROWID;

CREATE TABLE document (
    tenant TEXT NOT NULL, user_id TEXT NOT NULL, space BLOB NOT NULL, key BLOB NOT NULL, body BLOB NOT NULL,
    created_at REAL NOT NULL, updated_at REAL NOT NULL, expires_at REAL,
    PRIMARY KEY (tenant, user_id, space, key)
) WITHOUT ROWID;
CREATE INDEX document_expiry ON document (tenant, expires_at) WHERE expires_at IS NOT NULL;

CREATE TABLE seal (
    tenant TEXT NOT NULL, name TEXT NOT NULL, mac TEXT NOT NULL, earlier TEXT, PRIMARY KEY (tenant, name)
) WITHOUT ROWID;

CREATE TABLE seal_total (
    tenant TEXT NOT NULL, changes INTEGER NOT NULL, recorded INTEGER NOT NULL, total BLOB NOT NULL,
    PRIMARY KEY (tenant)
) WITHOUT ROWID;

-- Full-text indexes of (scope, key) rows, by rowid of what they index.
CREATE VIRTUAL TABLE post_text USING fts5(scope, key, tokenize = 'unicode61 remove_diacritics 2');
CREATE VIRTUAL TABLE memory_text USING fts5(scope, key, tokenize = 'unicode61 remove_diacritics 2');
