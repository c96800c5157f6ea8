-- The last statement of PostgreSQL's schema: rows are visible to their tenant only, and to transactions over all tenants (*).
-- The setting is read in a subquery, once for each statement and not for each row.
-- Tables with that policy are left alone: changing one locks it, and servers may be running.
DO $$ DECLARE name TEXT; BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO cuebook_app', current_schema());
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO cuebook_app', current_schema());
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %I TO cuebook_app', current_schema());
    FOR name IN SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
        LEFT JOIN pg_policies p ON p.schemaname = current_schema() AND p.tablename = c.relname AND p.policyname = 'tenant'
        WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
            AND NOT (c.relrowsecurity AND c.relforcerowsecurity AND p.permissive = 'PERMISSIVE' AND p.roles = '{public}'
                AND p.cmd = 'ALL' AND p.with_check IS NULL
                AND p.qual = '((tenant = ( SELECT current_setting(''cuebook.tenant''::text, true) AS current_setting))'
                || ' OR (( SELECT current_setting(''cuebook.tenant''::text, true) AS current_setting) = ''*''::text))') IS TRUE LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('DROP POLICY IF EXISTS tenant ON %I', name);
        EXECUTE format('CREATE POLICY tenant ON %I USING (tenant = (SELECT current_setting(''cuebook.tenant'', true))
            OR (SELECT current_setting(''cuebook.tenant'', true)) = ''*'')', name);
    END LOOP;
    -- Only a superuser can let policies use the indexes of words. Without it, the words of an owner are compared one by one.
    IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user)
        AND NOT (SELECT proleakproof FROM pg_proc WHERE oid = 'pg_catalog.ts_match_vq(tsvector, tsquery)'::regprocedure) THEN
        ALTER FUNCTION pg_catalog.ts_match_vq(tsvector, tsquery) LEAKPROOF;
    END IF;
END $$;
