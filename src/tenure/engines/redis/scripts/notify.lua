-- Tell everybody.
-- include: numbers base signals
--
-- KEYS[1], ARGV[1]: see base. ARGV[2]: a list of {topic, key}. Safe to repeat.

for _, signal in ipairs(cmsgpack.unpack(ARGV[2])) do
  local topic, key = unpack(signal, 1, 2)
  if topic == "queue" then
    wake(key, 2, clock())
  elseif topic == "any" then
    call("PUBLISH", PREFIX .. "!any", key)
  else
    tell(topic, {key})
  end
end
return 1
