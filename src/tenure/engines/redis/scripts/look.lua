-- Read what a decision is made from. Nothing is written.
-- include: numbers base rows merge look
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: a question, see look.
-- Answers {now, digest, answer}: `digest` tells the answer from any other one.

local now = clock()
local answer = look(cmsgpack.unpack(ARGV[2]), now)
return "\147" .. cmsgpack.pack(text(now)) .. cmsgpack.pack(redis.sha1hex(answer)) .. answer
