-- The last statement of PostgreSQL's schema: rows are visible to their tenant only, and to transactions over all tenants (*).
DO $$ DECLARE name TEXT; BEGIN
    GRANT USAGE ON SCHEMA public TO cuebook_app;
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO cuebook_app;
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO cuebook_app;
    FOR name IN SELECT table_name FROM information_schema.columns WHERE table_schema = 'public' AND column_name = 'tenant' LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY tenant ON %I USING (tenant = current_setting(''cuebook.tenant'', true)
            OR current_setting(''cuebook.tenant'', true) = ''*'')', name);
    END LOOP;
END $$;
