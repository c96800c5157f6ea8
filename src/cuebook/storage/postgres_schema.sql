-- What only PostgreSQL has: functions of SQLite that the statements use, those of full-text search, and the stored key.

-- The key of API keys and audit records, encrypted with a secret that only the servers know.
CREATE TABLE wrapped_key (no BIGINT NOT NULL PRIMARY KEY, body BYTEA NOT NULL);

CREATE FUNCTION json_each(list TEXT) RETURNS TABLE (value TEXT) LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN jsonb_array_elements_text(list::jsonb);
CREATE FUNCTION json_numbers(list TEXT) RETURNS TABLE (value BIGINT) LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CAST(jsonb_array_elements_text(list::jsonb) AS BIGINT);
CREATE FUNCTION json_extract(document TEXT, path TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN document::jsonb #>> string_to_array(substr(path, 3), '.');
CREATE FUNCTION json_array_length(list TEXT) RETURNS INTEGER LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN jsonb_array_length(list::jsonb);
CREATE FUNCTION instr(text TEXT, part TEXT) RETURNS INTEGER LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN strpos(text, part);
CREATE FUNCTION iif(condition BOOLEAN, one TEXT, other TEXT) RETURNS TEXT LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN condition THEN one ELSE other END;

-- The words of an indexed text, which are separated by spaces.
CREATE FUNCTION words_of(key TEXT) RETURNS TSVECTOR LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN array_to_tsvector(array_remove(string_to_array(key, ' '), ''));

-- A query of any of these words. One that ends with * stands for all words that begin with it.
CREATE FUNCTION any_of(words TEXT) RETURNS TSQUERY LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN (SELECT string_agg('''' || replace(replace(rtrim(value, '*'), '\', '\\'), '''', '''''')
        || CASE WHEN value LIKE '%*' THEN ''':*' ELSE '''' END, ' | ')::tsquery FROM json_each(words));

-- The BM25 score of a word that occurs `count` times in a text of `length` words, and in `found` of `all_texts` with this average length.
CREATE FUNCTION bm25(count BIGINT, found BIGINT, length INTEGER, all_texts BIGINT, average DOUBLE PRECISION) RETURNS DOUBLE PRECISION
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ln(1 + (all_texts - found + 0.5::float8) / (found + 0.5::float8)) * count * 2.2::float8
        / (count + 1.2::float8 * (0.25::float8 + 0.75::float8 * length / average));

-- The BM25 scores of texts by their words. The matches of a query are all that is counted.
CREATE FUNCTION ranked(nos BIGINT[], keys TEXT[], words TEXT) RETURNS TABLE (no BIGINT, score DOUBLE PRECISION) LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    WITH found AS MATERIALIZED (SELECT t.no, string_to_array(t.key, ' ') AS terms, ' ' || t.key AS text FROM unnest(nos, keys) AS t (no, key)
    ), counted AS MATERIALIZED (
        SELECT f.no, cardinality(f.terms) AS length, w.value AS term, cardinality(array_positions(f.terms, w.value))::bigint AS count
        FROM (SELECT DISTINCT value FROM json_each(words)) w JOIN found f ON w.value = ANY (f.terms)
        UNION ALL
        SELECT f.no, cardinality(f.terms), w.value, n.count
        FROM (SELECT DISTINCT value, ' ' || rtrim(value, '*') AS prefix FROM json_each(words) WHERE value LIKE '%*') w, found f,
            LATERAL (SELECT (length(f.text) - length(replace(f.text, w.prefix, ''))) / length(w.prefix) AS count) n WHERE n.count > 0
    ), usual AS (SELECT count(*) AS posts, avg(cardinality(terms)) AS length FROM found)
    SELECT c.no, sum(bm25(c.count, t.posts, c.length, u.posts, u.length)) FROM counted c
    JOIN (SELECT term, count(*) AS posts FROM counted GROUP BY term) t ON t.term = c.term, usual u GROUP BY c.no
$$;
