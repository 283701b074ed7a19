-- Write what was decided, if what it was decided from still stands.
-- include: numbers base signals rows limits merge look
--
-- KEYS[1]: see base. ARGV[1]: the time that `look` answered.
-- ARGV[2]: {question, digest, rows, hashes, woken, done, cancelled, freed, left}
--   rows: {id, values by place, body, result}, written whole in place of what is there, if anything
--   hashes: {name of a hash, field, value}; value false removes the field
--   woken: {queue = count}; done, cancelled: ids; see signals
--   freed: {queue, key, how many slots}; left: {queue = how many jobs ended}; see limits
-- Answers 1, or 0 if something changed since: then nothing was written.
--
-- The first write to a job that is there takes it out of an index, which needs no memory, so it is
-- let through when that has run out (see base.begin_writing); a new job is refused as a whole.

local now = tonumber(ARGV[1])
local question, digest, rows, hashes, woken, done, cancelled, freed, left =
  unpack(cmsgpack.unpack(ARGV[2]), 1, 9)
if redis.sha1hex(look(question, now)) ~= digest then
  return 0
end
for _, item in ipairs(rows) do
  local id, row = item[1], item[2]
  local before = load(id)
  row[BODY], row[RESULT] = item[3], item[4]
  if before then
    leave(id, before)
    call("DEL", job_key(id))
  end
  write(id, row)
  enter(id, row)
  if not before then
    call("ZADD", PREFIX .. "ids", 0, id)
    call("SADD", PREFIX .. "queues", queue_of(row[LANE]))
    if tick_name(row) then
      call("HSET", PREFIX .. "ticks", tick_name(row), id)
    end
  elseif row[LANE] ~= before[LANE] then
    call("SADD", PREFIX .. "queues", queue_of(row[LANE]))
  end
end
for _, item in ipairs(hashes) do
  if item[3] then
    call("HSET", PREFIX .. item[1], item[2], item[3])
  else
    call("HDEL", PREFIX .. item[1], item[2])
  end
end
pass_on(freed, woken)
note_left(left, woken)
wake_all(woken, now)
tell("done", done)
tell("cancel", cancelled)
return 1
