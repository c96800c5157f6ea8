-- The function that wakes workers, in the transaction that leaves work. It defers a job of procrastinate for each kind of
-- work, unless one waits or another transaction is deferring one. Workers also look for work by themselves: without
-- procrastinate's tables, or after any error there, the work is done later and the transaction goes on.
CREATE OR REPLACE FUNCTION wake(kinds TEXT[]) RETURNS VOID LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = cuebook_queue, pg_temp AS $$
DECLARE
    kind TEXT;
BEGIN
    IF to_regproc('cuebook_queue.procrastinate_defer_jobs_v1') IS NULL THEN
        RETURN;
    END IF;
    FOREACH kind IN ARRAY kinds LOOP
        -- faster than the exception below, which is for jobs that others defer meanwhile
        CONTINUE WHEN EXISTS (SELECT FROM procrastinate_jobs j WHERE j.queueing_lock = kind AND j.status = 'todo');
        CONTINUE WHEN NOT pg_try_advisory_xact_lock(hashtext('cuebook.wake'), hashtext(kind));
        BEGIN
            PERFORM procrastinate_defer_jobs_v1(ARRAY[
                ROW(kind, 'cuebook.work', 0, NULL, kind, jsonb_build_object('kind', kind), NULL)::procrastinate_job_to_defer_v1
            ]);
        EXCEPTION WHEN unique_violation THEN
            NULL; -- a job of this kind waits already
        END;
    END LOOP;
EXCEPTION
    WHEN serialization_failure OR deadlock_detected THEN
        RAISE; -- the transaction must run again
    WHEN OTHERS THEN
        NULL;
END $$
