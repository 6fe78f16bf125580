-- Same as pg_notify. A session from another node may have to be prepared there, and leaves the notification to the next worker that polls.
create or replace function queue_here.tell(channel text, payload text) returns void
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
begin
  if left(current_setting('application_name'), 14) = 'citus_internal' then
    -- Refused like in pg_notify: later it would be refused together with those of other sessions.
    if octet_length(tell.payload) > 7999 or octet_length(tell.channel) = 0 or octet_length(tell.channel) > 63 then
      raise exception using errcode = '22023', message = 'queue: what is to be told is too long, or has no channel of that name';
    end if;
    insert into queue.told (id, channel, payload) values (nextval('queue.id_seq'), tell.channel, tell.payload);
  else
    perform pg_notify(tell.channel, tell.payload);
  end if;
end
$$;

-- Sends the stored notifications; returns whether there were any. Concurrent calls send different ones.
create or replace function queue_here.relay() returns boolean
  language plpgsql volatile security definer
  set search_path = pg_catalog, pg_temp
as $$
declare
  one  record;
begin
  if not exists (select from queue.told) then
    return false;
  end if;
  perform queue_here.held();
  for one in
    with taken as (
      delete from queue.told t
      where t.id = any (array(select o.id from queue.told o order by o.id limit 1000 for update skip locked))
      returning t.id, t.channel, t.payload
    )
    select t.channel, t.payload from taken t group by t.channel, t.payload order by min(t.id)
  loop
    perform pg_notify(one.channel, one.payload);
  end loop;
  return true;
end
$$;
