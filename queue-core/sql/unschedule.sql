-- schedule -> nothing: the one called $1; returns whether there was one.
-- Safe: one row; a worker that has it locked fires its tick first, or finds it gone.
select queue.unschedule($1)
