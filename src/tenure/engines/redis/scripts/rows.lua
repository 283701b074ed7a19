-- Read jobs by id.
-- include: base rows
--
-- KEYS[1]: see base. ARGV[2]: a list of ids.
-- Answers a list: a row each, or nil where there is none.

local answers = {}
for i, id in ipairs(cmsgpack.unpack(ARGV[2])) do
  local row = load(id)
  answers[i] = row and packed(id, row) or "\192"
end
return array(#answers) .. table.concat(answers)
