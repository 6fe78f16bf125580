-- Numbers that JSON can say and most languages cannot hold. Enqueues (1_jobs.sql, 3_keys.sql, 6_enqueue.sql, 20_lines.sql) and signals refuse them,
-- for handlers could not read what has them.

-- Whether a number in a JSON text may be beyond 64 bits: such a one has at least as many digits as this.
create function queue.may_overflow(written text) returns boolean
  language sql immutable parallel safe
  return written operator(pg_catalog.~) '[0-9]{20}|-[0-9]{19}';

-- Whether a number as jsonb prints it is one of 64 bits: an integer with or without a sign, or a float. Of a large float jsonb makes an integer: it
-- has the digits of a float, and zeros behind them.
create function queue.fits_64_bits(number text) returns boolean
  language sql immutable parallel safe
  return case
    when number::numeric between -9223372036854775808 and 18446744073709551615 and pg_catalog.strpos(number, '.') = 0 then true
    when pg_catalog.strpos(number, '.') = 0 and pg_catalog.length(pg_catalog.rtrim(pg_catalog.ltrim(number, '-'), '0')) > 17 then false
    else number::numeric = 0 or pg_catalog.abs(number::numeric) between 5e-324 and 1.7976931348623157e308
  end;

-- Refuses a document with a number beyond 64 bits, which handlers in Rust and most other languages cannot read; names where it is.
create function queue.check_numbers(document jsonb) returns void
  language plpgsql immutable strict
  set search_path = pg_catalog, pg_temp
as $$
declare
  beyond  text;
begin
  if not queue.may_overflow(document::text) then
    return;
  end if;
  with recursive part (place, value) as (
    select '$', check_numbers.document
    union all
    select p.place || c.step, c.value
    from part p
    cross join lateral (
      select '.' || o.key as step, o.value
      from jsonb_each(case jsonb_typeof(p.value) when 'object' then p.value end) o
      union all
      select format('[%s]', a.nth - 1), a.value
      from jsonb_array_elements(case jsonb_typeof(p.value) when 'array' then p.value end) with ordinality a (value, nth)
    ) c
  )
  select p.place into beyond
  from part p
  where jsonb_typeof(p.value) = 'number' and not queue.fits_64_bits(p.value #>> '{}')
  limit 1;
  if beyond is not null then
    raise invalid_parameter_value using
      message = format('queue.enqueue: the number at %s is beyond 64 bits; store it as a string', left(beyond, 200));
  end if;
end
$$;
