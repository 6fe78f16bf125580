-- Returns a setting that was sent at the start of the connection.
-- Safe: reads only.
select current_setting('plan_cache_mode') as mode
