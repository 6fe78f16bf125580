-- Returns the plan_cache_mode in force on this connection. Connections set it at startup.
-- Safe: read-only.
select current_setting('plan_cache_mode') as mode
