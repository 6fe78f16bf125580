-- schedule -> nothing: deletes the schedule $1; returns whether it existed.
-- Safe: one row; a worker that has it locked fires its tick first, or finds it deleted.
select queue.unschedule($1)
