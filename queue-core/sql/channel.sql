-- The name of the store's channel $1, 'wake' or 'over'. It is a secret: whoever knows it can notify all who listen.
select queue.channel($1)
