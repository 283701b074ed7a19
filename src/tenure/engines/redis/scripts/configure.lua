-- Set how a queue is treated.
-- include: numbers base signals
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: {queue, paused, settings}: `settings` is kept as it is.
-- Safe to repeat.

local queue, paused, settings = unpack(cmsgpack.unpack(ARGV[2]), 1, 3)
call("HSET", PREFIX .. "settings", queue, settings)
call(paused and "SADD" or "SREM", PREFIX .. "paused", queue)
wake(queue, 2, clock())
return 1
