-- The last statement of PostgreSQL's schema: rows are visible to their tenant only, and to transactions over all tenants (*).
DO $$ DECLARE name TEXT; BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO cuebook_app', current_schema());
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO cuebook_app', current_schema());
    EXECUTE format('GRANT USAGE ON ALL SEQUENCES IN SCHEMA %I TO cuebook_app', current_schema());
    FOR name IN SELECT c.table_name FROM information_schema.columns c
        WHERE c.table_schema = current_schema() AND c.column_name = 'tenant' LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('DROP POLICY IF EXISTS tenant ON %I', name);
        EXECUTE format('CREATE POLICY tenant ON %I USING (tenant = current_setting(''cuebook.tenant'', true)
            OR current_setting(''cuebook.tenant'', true) = ''*'')', name);
    END LOOP;
END $$;
