-- Read what workers said whose word still holds.
-- include: numbers base
--
-- KEYS[1], ARGV[1]: see base. Answers a list of texts: when it was said, a blank, what was said.

local answers = {}
for i, id in ipairs(call("ZRANGEBYSCORE", PREFIX .. "workers:until", "(" .. text(clock()), "+inf")) do
  answers[i] = call("HGET", PREFIX .. "workers", id)
end
return answers
