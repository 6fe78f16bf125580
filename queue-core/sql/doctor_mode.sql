-- Whether a setting that the connection began with is in force.
-- Safe: it only reads.
select current_setting('plan_cache_mode') as mode
